"""Inputs, and outputs without a graph, that only the cyclic garbage collector frees: search trees, kept episodes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, ClassVar, final

import torch
from torch import nn

from memguard.facts import Fact, FreedByCollector
from memguard.probes.cycles.collected_graphs import look_at_garbage
from memguard.probes.cycles.on_collection import OnCollection
from memguard.probes.interface import Probe, Watch
from memguard.probes.objects.storage_refs import StorageRef
from memguard.probes.returned import first_large_storage, large_storages

MIN_BYTES = 1024
"""Of an output that is followed."""
MAX_OUTPUTS = 1024
MIN_OUTPUTS = 16
"""Outputs that the collector freed, before the circle is looked for."""
TRIES = 3
"""How often it is looked for: the garbage may be gone already."""
WAIT = 3
"""Batches before each look, for garbage to come together again."""


@final
class CollectedOutputsProbe(Probe):
    """Follows the storages of inputs, and of outputs made without gradients; hears the collector begin and end.

    What reference counting frees is gone when the collector begins; what is gone when it ends was held by a circle.
    """

    name: ClassVar[str] = "collected outputs"

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._collector = OnCollection(self._on_collection)
        self._refs: list[tuple[Any, int]] = []
        self._input = 0
        """Key of the last input's storage: a slice of the whole data has the same in every batch."""
        self._alive: list[tuple[Any, int]] = []
        self._freed = self._bytes = self._tries = 0
        self._wait = WAIT

    def install(self) -> None:
        """Listens to the collector."""
        self._collector.install()

    def remove(self) -> None:
        """Listens no more, forgets all storages."""
        self._collector.remove()
        self._refs, self._alive = [], []

    def on_forward_end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """Notes the storages of an output without a graph, and of the first input."""
        if output is None or len(self._refs) >= MAX_OUTPUTS:
            return
        first = first_large_storage(args, MIN_BYTES)
        if first is not None and first[0]._cdata != self._input:
            self._input = first[0]._cdata
            self._refs.append((StorageRef(first[0]), first[1]))
        if torch.is_grad_enabled():
            return
        for storage, nbytes in large_storages(output, MIN_BYTES):
            self._refs.append((StorageRef(storage), nbytes))

    def on_batch_end(self) -> None:
        """Looks for the circle when the collector freed enough."""
        if len(self._refs) >= MAX_OUTPUTS // 2:
            self._refs = [item for item in self._refs if not item[0].expired()]
        if self._freed < MIN_OUTPUTS:
            return
        self._wait -= 1
        if self._wait:
            return
        self._wait = WAIT
        self._tries += 1
        if self._tries == TRIES:
            self.stop_hearing("on_forward_end", "on_batch_end")
        found = look_at_garbage()
        if found is None or found.text is None or found.place.file is None or not found.bytes:
            return
        self.stop_hearing("on_forward_end", "on_batch_end")
        self.report(
            FreedByCollector(
                batch=self.watch.batch,
                stage=self.watch.stage,
                place=found.place,
                graphs=0,
                outputs=self._freed,
                bytes=self._bytes,
                cycle=found.text,
                parts=found.parts,
                collector_enabled=gc.isenabled(),
            )
        )

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._alive = [item for item in self._refs if not item[0].expired()] if self._refs else []
        elif self._alive:
            freed = [size for ref, size in self._alive if ref.expired()]
            self._freed += len(freed)
            self._bytes += sum(freed)
            self._alive = []
