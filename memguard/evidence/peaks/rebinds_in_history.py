"""Large tensors made again before the old one is freed, in a recorded history: under one name.

On a real device where memory is tight enough for it to matter, and only there: it costs microseconds an allocation.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, final

from memguard.evidence.interface import Probe
from memguard.evidence.peaks.history import AllocationRecording
from memguard.evidence.peaks.periodic_reallocation import ALIKE
from memguard.records.facts import Place, ReboundTensor
from memguard.records.stats import Stage
from memguard.source.stores import Rebinding, gives_back, rebinding_at
from memguard.thresholds import least_of_device, much_of, some_of

if TYPE_CHECKING:
    from memguard.allocator.snapshot import Frame
    from memguard.allocator.timeline import AllocationTimeline, Block

BEGIN = {Stage.TRAIN: 12, Stage.VALIDATION: 2, Stage.TEST: 2}
"""The batch of a stage after which the history begins: some evaluations have few. In training it begins after the first
optimizer step, which makes the optimizer's state, where memory is tight by then."""
BATCHES = {Stage.TRAIN: 3, Stage.VALIDATION: 96, Stage.TEST: 96}
"""How long it goes on: an evaluation in windows makes its canvas once in many calls of the model."""
TIGHT = 0.25
"""Share of the device that the peak takes, from which on it is worth what a look costs."""


@final
class RebindsProbe(Probe):
    """Looks once at training, and once at evaluation."""

    def _prepare(self) -> None:
        self._counts = dict.fromkeys(BATCHES, 0)
        """Batches of each stage that is still to be examined."""
        self._peaks = dict.fromkeys(BATCHES, 0)
        self._on: Stage | None = None
        """The stage whose history is written."""
        self._until = 0
        """Batches of that stage at which it ends."""
        self._stepped = False
        """Whether an optimizer stepped by the end of a batch."""
        self._recording = AllocationRecording(self.watch)

    def install(self) -> None:
        """Without a history there is nothing to examine."""
        if self.watch.history is None:
            self.unsubscribe("on_batch_end", "on_stage_end")

    def on_batch_end(self) -> None:
        """Begins the history after some batches, and reads it some batches later."""
        watch, stage = self.watch, self.watch.stage
        if stage not in self._counts or self._on not in (None, stage):
            return
        count = self._counts[stage] = self._counts[stage] + 1
        if (record := watch.record) is not None:
            self._peaks[stage] = max(self._peaks[stage], record.allocated_peak_bytes or 0)
        if self._on is stage:
            if count >= self._until:
                self._conclude(stage)
        elif count == BEGIN[stage] or self._steps_first(stage):
            if self._recording.is_worth(self._peak, TIGHT):
                self._on, self._until = stage, count + BATCHES[stage]
                self._recording.begin()
            elif count == BEGIN[stage]:
                self._leave(stage)

    def _steps_first(self, stage: Stage) -> bool:
        """Whether this is the first batch of training after which an optimizer has stepped."""
        if self._stepped or stage is not Stage.TRAIN or not self.watch.optimizer_steps:
            return False
        self._stepped = True
        return True

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
        much = min(least_of_device(self.watch.device_total_bytes), much_of(self._peak))
        least = min(much, some_of(self._peak))
        for two in rebound(timeline, min_bytes=least, much=much):
            self.report(ReboundTensor(batch=self.watch.batch, stage=stage, place=two.place, bytes=two.bytes))


AS_HIGH = 0.99
"""Of the highest level of some batches: the peaks of the others."""


class Rebound(NamedTuple):
    """A line of which two tensors are there at once."""

    place: Place
    """The statement that makes them."""
    bytes: int


class _Pair(NamedTuple):
    """Two blocks of a line, as the old one goes."""

    line: Frame
    old: Block
    is_direct: bool
    """Whether the line itself made them, and no function that it calls."""
    is_only: bool
    """Whether there is no third."""
    goes_on: bool
    """Whether nothing else was allocated since the line made the new one."""
    at_peak: bool


def rebound(timeline: AllocationTimeline, *, min_bytes: int, much: int = 0) -> list[Rebound]:
    """Lines whose old tensor went after the same line had made one of its size, those with the most bytes first.

    Args:
        timeline: Some batches.
        min_bytes: Smallest tensor that counts.
        much: From that size on, what a line makes and drops by itself counts wherever the peak comes; all else counts
            where both are there at the peak.
    """
    statement = functools.cache(rebinding_at)
    found: dict[Frame, Rebound] = {}
    for pair in _pairs(timeline, min_bytes):
        about = statement(pair.line.filename, pair.line.line)
        told = None if about is None else _told(pair, about, much)
        if told is not None and (pair.line not in found or found[pair.line].bytes < told.bytes):
            found[pair.line] = told
    return sorted(found.values(), key=lambda each: -each.bytes)


def _told(pair: _Pair, about: Rebinding, much: int) -> Rebound | None:
    line, nbytes = pair.line, pair.old.size
    counts = (nbytes >= much or pair.at_peak) if pair.is_direct else (pair.is_only and pair.at_peak and about.doubles)
    if not (pair.goes_on and counts):
        return None
    place = Place(file=line.filename, line=line.line, function=line.name, holder=about.name, source=about.source)
    return Rebound(place, nbytes)


def _pairs(timeline: AllocationTimeline, min_bytes: int) -> Iterator[_Pair]:
    """The blocks that go while a later run of their line has made another of that size."""
    is_given_back = functools.cache(gives_back)
    levels = timeline.levels()
    high = AS_HIGH * max(levels, default=0)
    alive: dict[Frame, list[Block]] = {}
    made_by: dict[Block, tuple[Frame, bool]] = {}
    for old, event in timeline.changes():
        if old.size < min_bytes:
            continue
        if event == old.made:
            lines = timeline.calling_lines(event)
            line = next((each for each in lines if not is_given_back(each.filename, each.line)), None)
            if line is not None:
                made_by[old] = line, line == lines[0]
                alive.setdefault(line, []).append(old)
            continue
        if old not in made_by:
            continue
        line, is_direct = made_by[old]
        others = alive[line]
        others.remove(old)
        new = others[-1] if others else old
        if new.made <= old.made or not ALIKE * old.size <= new.size <= old.size / ALIKE:
            continue
        if timeline.is_one_run(line, old.made, new.made):
            continue  # an intermediate of it
        at_peak = max(levels[new.made : event]) >= high
        goes_on = timeline.is_one_run(line, new.made, event)
        yield _Pair(line, old, is_direct, len(others) == 1, goes_on, at_peak)
