"""A large tensor made again under its name before the old one is dropped: read from the history of a few batches.

On a real device where memory is tight enough for it to matter, and only there: it costs microseconds an allocation.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, final

from memguard.clocks import time_ns
from memguard.facts import Fact, LargeLocals, Place, PreviousOutputsAlive, ReboundTensor
from memguard.heap.frames import is_user_file
from memguard.probes.interface import AllocationHistory, Probe, Watch
from memguard.probes.peaks.history import MAX_ENTRIES
from memguard.probes.peaks.idle_locals import idle_at_peak
from memguard.probes.peaks.last_batch import LastBatch
from memguard.probes.peaks.rebound_calls import doubled_at_peak
from memguard.probes.worth import LEAST, LEAST_REMARK, PEAK_SHARE, REMARK_SHARE, least_of_device
from memguard.source.stores import assigned_at, gives_back, keeper_of, own_keeper, spelled
from memguard.stats import Stage

BEGIN = {Stage.TRAIN: 12, Stage.VALIDATION: 2, Stage.TEST: 2}
"""The batch of a stage after which the history begins: some evaluations have few."""
BATCHES = {Stage.TRAIN: 3, Stage.VALIDATION: 96, Stage.TEST: 96}
"""How long it goes on: an evaluation in windows makes its canvas once in many calls of the model."""
TIGHT = 0.25
"""Share of the device that the peak takes, from which on it is worth what a look costs."""
ALIKE = 0.75
"""How near the sizes of the old and the new one are."""

HIGHEST = 0.9
"""How near to the highest peak of all stages the one must be at which variables are looked for."""
GAIN, PART = 0.05, 0.02
"""Of the peak: by so much it must be lower without idle variables, and so large is the smallest that counts."""
LARGE = 0.2
"""Of the peak: variables as large as that are told one by one."""

AS_HIGH = 0.99
"""Of the highest level of some batches: the peaks of the others."""

_DEFAULT_DEVICE = os.path.join("torch", "utils", "_device.py")
"""Runs between a user's line and the operator where `torch.set_default_device` or ``with torch.device(...)`` is on."""

Site = tuple[str, int, str]
"""File, line, function."""


@final
class RebindsProbe(Probe):
    """Looks once at training, and once at evaluation."""

    name: ClassVar[str] = "rebinds"

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._counts = dict.fromkeys(BATCHES, 0)
        """Batches of each stage that is still to be looked at."""
        self._peaks = dict.fromkeys(BATCHES, 0)
        self._on: Stage | None = None
        """The stage whose history is written."""
        self._mine = False
        self._ends: list[int] = []
        """When it began and its batches ended, in microseconds."""
        self._last = LastBatch(watch, report)
        self._told: set[tuple[str | None, int | None]] = set()
        """Files and lines that were."""

    def install(self) -> None:
        """Where nobody can write a history, there is nothing to look at."""
        if self.watch.history is None:
            self.stop_hearing("on_batch_end", "on_stage_end")

    def on_batch_end(self) -> None:
        """Begins the history after some batches, and reads it some batches later."""
        watch, history, stage = self.watch, self.watch.history, self.watch.stage
        if self._last.kept:
            self._last.conclude()
        if not self._counts:
            self.stop_hearing("on_batch_end", "on_stage_end")
        if stage not in self._counts or history is None or self._on not in (None, stage):
            return
        count = self._counts[stage] = self._counts[stage] + 1
        self._ends = [*self._ends, time_ns() // 1000] if self._on is stage else []
        looks = count <= BEGIN[stage] or self._on is stage
        if looks and (record := watch.record) is not None:
            self._peaks[stage] = max(self._peaks[stage], record.allocated_peak_bytes or 0)
        if count == BEGIN[stage]:
            if not self._is_worth_it(history):
                self._leave(stage)
                return
            self._on, self._ends = stage, [time_ns() // 1000]
            self._mine = not history.records_history  # on a virtual GPU stacks come with any history
            if self._mine:
                history.record_history(True, MAX_ENTRIES)
        elif count >= BEGIN[stage] + BATCHES[stage]:
            self._conclude(history, stage)

    def on_stage_end(self, stage: Stage) -> None:
        """An evaluation may end before its history is long enough."""
        if self._on is stage and stage is not Stage.TRAIN and self.watch.history is not None:
            self._conclude(self.watch.history, stage)

    def remove(self) -> None:
        """Switches off a history that is still on."""
        if self.watch.history is not None:
            self._end(self.watch.history)

    @property
    def _peak(self) -> int:
        return max(self._peaks.values())

    def _leave(self, stage: Stage) -> None:
        self._counts.pop(stage)
        if not self._counts:
            self.stop_hearing("on_batch_end", "on_stage_end")

    def _end(self, history: AllocationHistory) -> None:
        if self._on is not None and self._mine:
            history.record_history(False, MAX_ENTRIES)
        self._on = None

    def _is_worth_it(self, history: AllocationHistory) -> bool:
        if self.watch.device.startswith("virtual"):
            return self._peak > 0  # where all is slow, a history adds little
        total = self.watch.device_total_bytes
        return bool(total) and self._peak >= TIGHT * (total or 0) and not history.records_history  # the user's own

    def _conclude(self, history: AllocationHistory, stage: Stage) -> None:
        self._leave(stage)
        try:
            trace = [event for events in history.snapshot().get("device_traces", ()) for event in events]
        finally:
            self._end(history)
        much = min(least_of_device(self.watch.device_total_bytes), max(int(PEAK_SHARE * self._peak), LEAST))
        least = min(much, max(int(REMARK_SHARE * self._peak), LEAST_REMARK))
        for two in doubled_at_peak(trace, min_bytes=least):
            if two.keeper is not None:
                self._tell_kept(two.keeper, two.bytes, stage)
            else:
                self._tell_rebound(two.site, two.name, two.source, two.bytes, stage)
        for (file, line, function), nbytes in sorted(
            rebound(trace, min_bytes=least, much=much).items(), key=lambda it: -it[1]
        ):
            target = assigned_at(file, line)
            if target is not None and not gives_back(file, line):  # else no variable of that function has the old one
                holder, source = target
                keeper = keeper_of(file, line, holder) or own_keeper(file, line, holder)
                if keeper is not None and is_there_at_peak(trace, (file, line, function)):
                    self._tell_kept(keeper, nbytes, stage)
                    continue
                self._tell_rebound((file, line, function), holder, source, nbytes, stage)
        self._tell_idle(trace, stage)
        peak = self._peaks[stage]
        if stage is Stage.TRAIN and peak:
            self._last.look(trace, self._ends, min_bytes=least, peak=peak, told=self._told)
            self.hear("on_batch_end")

    def _tell_rebound(self, site: Site, holder: str, source: str, nbytes: int, stage: Stage) -> None:
        place = Place(file=site[0], line=site[1], function=site[2], holder=holder, source=source)
        self._told.add((place.file, place.line))
        self.report(ReboundTensor(batch=self.watch.batch, stage=stage, place=place, bytes=nbytes))

    def _tell_kept(self, keeper: Place, nbytes: int, stage: Stage) -> None:
        """An attribute keeps the last batch's, and the peak comes while it does."""
        self._told.add((keeper.file, keeper.line))
        fact = PreviousOutputsAlive(batch=self.watch.batch, stage=stage, place=keeper, bytes=nbytes, graph=False)
        self.report(replace(fact, peak_in_forward=True, steady=True, peak_bytes=self._peaks[stage]))

    def _tell_idle(self, trace: list[dict[str, Any]], stage: Stage) -> None:
        """Local variables that raise the peak though nothing reads them any more, where it is the run's."""
        peak = self._peaks[stage]
        if peak < HIGHEST * self._peak:
            return
        found = [idle for idle in idle_at_peak(trace, min_bytes=int(PART * peak)) if idle.gain_bytes >= GAIN * peak]
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


def rebound(trace: list[dict[str, Any]], *, min_bytes: int, much: int = 0) -> dict[Site, int]:
    """Lines whose tensor was freed right after the same line had made one of its size, with that size.

    Args:
        trace: Allocator events in PyTorch's snapshot format, oldest first.
        min_bytes: Smallest tensor that counts.
        much: From that size on it counts wherever the peak comes; below it, where both are there at the peak.

    Returns:
        Bytes by (file, line, function).
    """
    found: dict[tuple[str, int, str], int] = {}
    alive: dict[int, tuple[Site, int, int, int]] = {}
    """Line, size, stretch and number of the event of each large block."""
    levels = list(itertools.accumulate(map(_change, trace)))
    high = AS_HIGH * max(levels, default=0)
    stretch, last, newest = 0, None, 0
    """Allocations of one line without another's between them are one stretch: one run of its statement."""
    for number, event in enumerate(trace):
        action, address, size = event.get("action"), event.get("addr", 0), int(event.get("size", 0))
        if action == "alloc":
            site = _direct_line(event.get("frames") or ())
            stretch += site != last
            last = site
            if site is not None and size >= min_bytes:
                alive[address] = (site, size, stretch, number)
                newest = address
        elif action in ("free_requested", "free") and address in alive:
            site, size, then, _ = alive.pop(address)
            made = alive.get(newest)
            if made is None or made[0] != site or made[2] != stretch or then == stretch:
                continue  # the newest is of another line, or this one is of the same run: an intermediate
            at_peak = size >= much or max(levels[made[3] : number]) >= high
            if at_peak and ALIKE * size <= made[1] <= size / ALIKE:
                found[site] = max(found.get(site, 0), size)
    return found


def is_there_at_peak(trace: list[dict[str, Any]], site: Site) -> bool:
    """Whether at the highest level a block of a line is there that the same line makes anew only later.

    Args:
        trace: Allocator events in PyTorch's snapshot format, oldest first.
        site: The line.
    """
    levels = list(itertools.accumulate(map(_change, trace)))
    highest = max(levels, default=0)
    # Of the first batch's peak the history does not know what was there: the last one is as high.
    at = max((number for number, level in enumerate(levels) if level >= AS_HIGH * highest), default=-1)
    alive: set[int] = set()
    waits = False
    for number, event in enumerate(trace):
        address = event.get("addr", 0)
        if event.get("action") == "alloc" and _direct_line(event.get("frames") or ()) == site:
            if waits:
                return True
            alive.add(address)
        elif event.get("action") == "free_requested":
            waits = waits and address not in alive
            alive.discard(address)
        waits = waits or (number == at and len(alive) == 1)  # with two of them it is the line itself
    return waits  # the history may end with a step, before the line comes again


def _change(event: dict[str, Any]) -> int:
    size = int(event.get("size", 0))
    return {"alloc": size, "free_requested": -size}.get(str(event.get("action")), 0)


def _direct_line(frames: Any) -> Site | None:
    """The line that called the operator, if that is the user's own and not a library's."""
    for frame in frames:
        name = str(frame.get("filename", ""))
        if not name or name.startswith("??") or name.endswith(_DEFAULT_DEVICE):
            continue
        site = (name, int(frame.get("line", 0)), str(frame.get("name", "")))
        return site if is_user_file(name) else None
    return None
