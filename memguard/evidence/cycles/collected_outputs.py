"""Inputs, outputs and models without a graph that only the cyclic collector frees."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, final

import torch
from torch import nn

from memguard.evidence.cycles.collected_graphs import freed_by_collector, look_at_garbage
from memguard.evidence.cycles.collector_events import OnCollection
from memguard.evidence.forward_outputs import first_large_storage, large_storages
from memguard.evidence.interface import Probe, ProbeContext
from memguard.records.facts import Fact
from memguard.torch_objects.module_parts import buffers_of, parameters_of
from memguard.torch_objects.storages import StorageRef, storages_of

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

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
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
            self.unsubscribe("on_forward_end", "on_batch_end")
        found = look_at_garbage()
        if found is None or found.text is None or found.place.file is None or not found.bytes:
            return
        self.unsubscribe("on_forward_end", "on_batch_end")
        self.report(freed_by_collector(self.watch, found, outputs=self._freed, nbytes=self._bytes))

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._alive = [item for item in self._refs if not item[0].expired()] if self._refs else []
        elif self._alive:
            freed = [size for ref, size in self._alive if ref.expired()]
            self._freed += len(freed)
            self._bytes += sum(freed)
            self._alive = []


MADE, WAITING = 4, 2
"""Models of one class made so far, and older ones of them that are still there, from which on the circle is sought."""
MIN_WEIGHTS, PEAK_SHARE = 1024**2, 0.05
"""Of the weights that wait: so many bytes, or so much of a batch's peak if that is less."""


@final
class CollectedModelsProbe(Probe):
    """Counts models of one class; a collection shows which of the old ones nobody holds but they themselves."""

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._made: dict[str, list[weakref.ref[nn.Module]]] = {}
        self._due: str | None = None
        self._tries = 0
        self.unsubscribe("on_batch_end")

    def on_model(self, model: nn.Module) -> None:
        """One more; a collection is due if there are old ones of its class."""
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        made = self._made.setdefault(kind, [])
        made.append(weakref.ref(model))
        if len(made) >= MADE and self._tries < TRIES and not self.watch.lightning:  # whose trainers are circles
            self._due = kind
            self.hear("on_batch_end")

    def on_batch_end(self) -> None:
        """Collects, and tells of the old models that are gone."""
        self.unsubscribe("on_batch_end")
        kind, self._due = self._due, None
        old = {ref: _size(ref) for ref in self._made.get(kind or "", [])[:-1] if ref() is not None}
        if len(old) < WAITING or sum(old.values()) < _least(self.watch.peak_bytes):
            return
        self._tries += 1
        found = look_at_garbage()
        gone = [nbytes for ref, nbytes in old.items() if ref() is None]
        named = found is not None and found.place.line is not None and "." in (found.place.holder or "")
        if found is None or not named or len(gone) < WAITING or sum(gone) < _least(self.watch.peak_bytes):
            return
        self._tries = TRIES
        self.report(freed_by_collector(self.watch, found, models=len(gone), nbytes=max(sum(gone), found.bytes)))


def _size(ref: weakref.ref[nn.Module]) -> int:
    model = ref()
    return 0 if model is None else sum(storages_of([*parameters_of(model), *buffers_of(model)]).values())


def _least(peak: int | None) -> int:
    return MIN_WEIGHTS if peak is None else min(MIN_WEIGHTS, int(PEAK_SHARE * peak))
