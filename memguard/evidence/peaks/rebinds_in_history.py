"""Large tensors made again under the same name before the old one is freed, in a recorded history.

On a real device where memory is tight enough for it to matter, and only there: it costs microseconds an allocation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, final

from memguard.clocks import time_ns
from memguard.evidence.interface import Probe, ProbeContext
from memguard.evidence.minimum_sizes import LEAST, LEAST_REMARK, PEAK_SHARE, REMARK_SHARE, least_of_device
from memguard.evidence.peaks.history_window import AllocationRecording
from memguard.evidence.peaks.idle_locals import idle_at_peak
from memguard.evidence.peaks.last_batch_attributes import LastBatch
from memguard.evidence.peaks.rebound_tensors import Rebound, rebound
from memguard.records.facts import Fact, LargeLocals, PreviousOutputsAlive, ReboundTensor
from memguard.records.stats import Stage
from memguard.source.stores import spelled

if TYPE_CHECKING:
    from memguard.allocator.timeline import AllocationTimeline

BEGIN = {Stage.TRAIN: 12, Stage.VALIDATION: 2, Stage.TEST: 2}
"""The batch of a stage after which the history begins: some evaluations have few."""
BATCHES = {Stage.TRAIN: 3, Stage.VALIDATION: 96, Stage.TEST: 96}
"""How long it goes on: an evaluation in windows makes its canvas once in many calls of the model."""
TIGHT = 0.25
"""Share of the device that the peak takes, from which on it is worth what a look costs."""

HIGHEST = 0.9
"""How near to the highest peak of all stages the one must be at which variables are looked for."""
GAIN, PART = 0.05, 0.02
"""Of the peak: by so much it must be lower without idle variables, and so large is the smallest that counts."""
LARGE = 0.2
"""Of the peak: variables as large as that are told one by one."""


@final
class RebindsProbe(Probe):
    """Looks once at training, and once at evaluation."""

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._counts = dict.fromkeys(BATCHES, 0)
        """Batches of each stage that is still to be looked at."""
        self._peaks = dict.fromkeys(BATCHES, 0)
        self._on: Stage | None = None
        """The stage whose history is written."""
        self._recording = AllocationRecording(watch)
        self._ends: list[int] = []
        """When it began and its batches ended, in microseconds."""
        self._last = LastBatch(watch, report)
        self._told: set[tuple[str | None, int | None]] = set()
        """Files and lines that were."""

    def install(self) -> None:
        """Where nobody can write a history, there is nothing to look at."""
        if self.watch.history is None:
            self.unsubscribe("on_batch_end", "on_stage_end")

    def on_batch_end(self) -> None:
        """Begins the history after some batches, and reads it some batches later."""
        watch, stage = self.watch, self.watch.stage
        if self._last.kept:
            self._last.conclude()
        if not self._counts:
            self.unsubscribe("on_batch_end", "on_stage_end")
        if stage not in self._counts or self._on not in (None, stage):
            return
        count = self._counts[stage] = self._counts[stage] + 1
        self._ends = [*self._ends, time_ns() // 1000] if self._on is stage else []
        looks = count <= BEGIN[stage] or self._on is stage
        if looks and (record := watch.record) is not None:
            self._peaks[stage] = max(self._peaks[stage], record.allocated_peak_bytes or 0)
        if count == BEGIN[stage]:
            if not self._recording.is_worth(self._peak, TIGHT):
                self._leave(stage)
                return
            self._on, self._ends = stage, [time_ns() // 1000]
            self._recording.begin()
        elif count >= BEGIN[stage] + BATCHES[stage]:
            self._conclude(stage)

    def on_stage_end(self, stage: Stage) -> None:
        """An evaluation may end before its history is long enough."""
        if self._on is stage and stage is not Stage.TRAIN:
            self._conclude(stage)

    def remove(self) -> None:
        """Switches off a history that is still on."""
        self._recording.end()

    @property
    def _peak(self) -> int:
        return max(self._peaks.values())

    def _leave(self, stage: Stage) -> None:
        self._counts.pop(stage)
        if not self._counts:
            self.unsubscribe("on_batch_end", "on_stage_end")

    def _conclude(self, stage: Stage) -> None:
        self._leave(stage)
        self._on, timeline = None, self._recording.read()
        much = min(least_of_device(self.watch.device_total_bytes), max(int(PEAK_SHARE * self._peak), LEAST))
        least = min(much, max(int(REMARK_SHARE * self._peak), LEAST_REMARK))
        for two in rebound(timeline, min_bytes=least, much=much):
            self._tell_rebound(two, stage)
        self._tell_idle(timeline, stage)
        peak = self._peaks[stage]
        if stage is Stage.TRAIN and peak:
            self._last.look(timeline, self._ends, min_bytes=least, peak=peak, told=self._told)
            self.hear("on_batch_end")

    def _tell_rebound(self, two: Rebound, stage: Stage) -> None:
        self._told.add((two.place.file, two.place.line))
        fact: Fact = ReboundTensor(batch=self.watch.batch, stage=stage, place=two.place, bytes=two.bytes)
        if two.is_kept:
            fact = PreviousOutputsAlive(
                batch=self.watch.batch,
                stage=stage,
                place=two.place,
                bytes=two.bytes,
                graph=False,
                peak_in_forward=True,
                steady=True,
                peak_bytes=self._peaks[stage],
            )
        self.report(fact)

    def _tell_idle(self, timeline: AllocationTimeline, stage: Stage) -> None:
        """Local variables that raise the peak though nothing reads them any more, where it is the run's."""
        peak = self._peaks[stage]
        if peak < HIGHEST * self._peak:
            return
        found = [idle for idle in idle_at_peak(timeline, min_bytes=int(PART * peak)) if idle.gain_bytes >= GAIN * peak]
        least = min(int(LARGE * peak), least_of_device(self.watch.device_total_bytes))
        groups = [[idle] for idle in found if idle.bytes >= least]  # each is worth its own line
        groups.append([idle for idle in found if idle.bytes < least and idle.place.function == found[0].place.function])
        for group in filter(None, groups):
            names = tuple(spelled(idle.name, idle.place.source) for idle in group)
            self.report(
                LargeLocals(
                    batch=self.watch.batch,
                    stage=stage,
                    place=replace(group[0].place, holder=", ".join(names[:5])),
                    names=names,
                    bytes=sum(idle.bytes for idle in group),
                    peak_bytes=peak,
                    at=f"peak, on line {group[0].line}",
                )
            )
