"""Locals left behind by something rarer than a batch, such as an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, final

import torch

from memguard.evidence.interface import Probe, ProbeContext
from memguard.evidence.minimum_sizes import LEAST_REMARK, REMARK_SHARE, least_of_remark
from memguard.evidence.owners import state_of
from memguard.evidence.peaks.large_locals import LargeLocal, find_large_locals
from memguard.records.facts import Fact, LargeLocals
from memguard.records.stats import BatchRecord, Stage
from memguard.source.stores import spelled
from memguard.torch_objects.storages import owned_storages, storages_of

FIRST = 4
"""Training batches after which a peak can stand out."""
TIMES = 4
"""So often it is looked, in a run."""


@final
class LateLocalsProbe(Probe):
    """Where training's peak rose, asks at the next two steps what stays in variables that nothing reads any more.

    Two steps with the same variable: it is there all through a batch, at whatever moment of it the peak comes.
    """

    name: ClassVar[str] = "late locals"

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._records = self._highest = self._times = 0
        self._before: set[LargeLocal] | None = None
        """What the last look found; None where the next one is the first."""
        self._told: set[tuple[str | None, int | None]] = set()
        self.unsubscribe("on_optimizer_step_start")

    def on_records(self, records: Sequence[BatchRecord]) -> None:
        """Looks after the first batches, and where the peak of one is higher than all before it."""
        peaks = [record.allocated_peak_bytes or 0 for record in records if record.stage is Stage.TRAIN]
        if not peaks:
            return
        early, self._records = self._records < FIRST, self._records + len(peaks)
        highest, peak = self._highest, max(peaks)
        self._highest = max(highest, peak)
        rose = peak > highest + max(REMARK_SHARE * highest, LEAST_REMARK)
        if self._records < FIRST or not (early or rose):
            return
        self._times += 1
        self._before = None
        self.watch.look_closely(3, surely=True)
        self.hear("on_optimizer_step_start")
        if self._times == TIMES:
            self.unsubscribe("on_records")

    def on_optimizer_step_start(self, optimizer: torch.optim.Optimizer) -> None:
        """Looks; what was there at the last look as well is told."""
        before, self._before = self._before, set()
        if before is not None:
            self.unsubscribe("on_optimizer_step_start")
        record = self.watch.record
        least = least_of_remark(record)
        if record is None or least is None:
            return
        owned = owned_storages(self.watch.models)
        owned.update(storages_of(state_of(optimizer)))
        found = find_large_locals(least, ignore=owned.__contains__, nests=True)
        self._before = {one for one in found if one.left and one.read_again is False and not one.shared}
        for local in self._before:
            last = next((one for one in before or () if one == local), None)
            if last is not None and not any(ref.expired() for ref in last.refs):
                self._tell(local, record.allocated_peak_bytes)

    def _tell(self, local: LargeLocal, peak_bytes: int | None) -> None:
        if (local.place.file, local.place.line) in self._told:
            return
        self._told.add((local.place.file, local.place.line))
        name = spelled(local.name, local.place.source)
        self.report(
            LargeLocals(
                batch=self.watch.batch,
                stage=self.watch.stage,
                place=replace(local.place, holder=name),
                names=(name,),
                bytes=local.bytes,
                peak_bytes=peak_bytes,
            )
        )
