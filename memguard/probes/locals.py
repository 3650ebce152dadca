"""Large local variables that are alive at the optimizer step though nothing reads them again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, final

import torch

from memguard.facts import Fact, LargeLocals
from memguard.probes.interface import Probe, Watch
from memguard.probes.large_locals import find_large_locals
from memguard.probes.owners import state_of
from memguard.probes.sizes import owned_storages, storages_of

LOOKS = frozenset({4, 40})
"""Optimizer steps at which it is asked."""
MIN_SHARE, MIN_BYTES = 0.03, 64 * 1024**2


@final
class LocalsProbe(Probe):
    """Asks at two optimizer steps what the functions on the stack still hold."""

    name: ClassVar[str] = "locals"

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._steps = 0
        self._told: set[str] = set()

    def on_optimizer_step_start(self, optimizer: torch.optim.Optimizer) -> None:
        """Looks at two of the steps."""
        self._steps += 1
        if self._steps >= max(LOOKS):
            self.stop_hearing("on_optimizer_step_start")
        if self._steps not in LOOKS:
            return
        watch = self.watch
        owned = owned_storages(watch.models)
        owned.update(storages_of(state_of(optimizer)))
        total = watch.device_total_bytes
        least = int(MIN_SHARE * total) if total else MIN_BYTES
        found = [
            local
            for local in find_large_locals(max(least // 4, 1), ignore=owned.__contains__)
            if local.read_again is False and local.name not in self._told
        ]
        nbytes = sum(local.bytes for local in found)
        if nbytes < least:
            return
        names = tuple(local.name for local in found)
        self._told.update(names)
        self.report(
            LargeLocals(
                batch=watch.batch,
                stage=watch.stage,
                place=replace(found[0].place, holder=", ".join(names[:5])),
                names=names,
                bytes=nbytes,
            )
        )
