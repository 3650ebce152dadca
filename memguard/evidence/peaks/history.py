"""Allocation history: windows of it for whoever looks, and lines whose allocations survive while memory grows."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, final

from memguard.evidence.interface import Probe, ProbeContext
from memguard.evidence.sampling_budget import PATIENCE, Floor
from memguard.heap.frames import is_user_file
from memguard.records.facts import Place, SurvivingAllocations
from memguard.records.stats import BatchRecord, Stage
from memguard.source.stores import assigned_at

if TYPE_CHECKING:
    from memguard.allocator.snapshot import Frame
    from memguard.allocator.timeline import AllocationTimeline, Block

MAX_ENTRIES = 100_000


@final
class AllocationRecording:
    """At most one at a time; what somebody else records is read along on a virtual device and left alone on others.

    Attributes:
        is_on: Whether there is one.
    """

    def __init__(self, watch: ProbeContext) -> None:
        self._watch = watch
        self._mine = self.is_on = False

    @property
    def is_free(self) -> bool:
        """Whether nobody records now."""
        return self._watch.history is not None and not self._watch.history.records_history

    def is_worth(self, nbytes: int, share: float) -> bool:
        """Whether so many bytes are worth the microseconds that each allocation takes.

        Args:
            nbytes: Zero or less is never worth it.
            share: Of the device, from which on they are; a virtual device is so slow that a history adds little.
        """
        total, is_virtual = self._watch.device_total_bytes or 0, self._watch.device.startswith("virtual")
        return nbytes > 0 and (is_virtual or (self.is_free and 0 < share * total <= nbytes))

    def begin(self) -> None:
        """Switches it on."""
        history = self._watch.history
        if history is not None:
            self.is_on, self._mine = True, not history.records_history
            if self._mine:
                history.record_history(True, MAX_ENTRIES)

    def end(self) -> None:
        """Switches off what is on."""
        if self.is_on and self._mine and self._watch.history is not None:
            self._watch.history.record_history(False, MAX_ENTRIES)
        self.is_on = False

    def read(self) -> AllocationTimeline:
        """What was recorded; and switches it off."""
        from memguard.allocator.timeline import AllocationTimeline  # most runs never need it

        history = self._watch.history
        try:
            traces = history.snapshot().get("device_traces", ()) if history is not None and self.is_on else ()
            return AllocationTimeline([event for events in traces for event in events], is_user=is_user_file)
        finally:
            self.end()


WARM_UP = 32
WINDOW = 8
RISES = 4
"""Windows whose lowest end-of-batch value rises in a row: then growth is suspected, no more than that."""
MIN_SHARE = 1e-4
BATCHES = (8, 32, 64)
"""Batches of history of the first look and of those after it: not everything grows in every batch."""
TIMES = (6, 4, 4)
"""Allocations of one line in them that make it worth telling."""


@final
class HistoryProbe(Probe):
    """Suspects growth from the records, then records the history of some batches and switches it off again."""

    always: ClassVar[frozenset[str]] = frozenset({"on_batch_end"})

    def _prepare(self) -> None:
        self._seen = 0
        self._floor = Floor(WINDOW, RISES)
        self._left = 0
        self._begun = -1
        self._recording = AllocationRecording(self.watch)
        self._looks = self._without = 0

    def install(self) -> None:
        """Where nobody can write a history, there is nothing to watch for."""
        self.unsubscribe("on_batch_end")
        if self.watch.history is None:
            self.unsubscribe("on_records")

    def on_batch_end(self) -> None:
        """Counts the batches of the history down."""
        watch = self.watch
        if self._left and watch.stage is Stage.TRAIN and watch.batch != self._begun:
            self._left -= 1
            if not self._left:
                self.unsubscribe("on_batch_end")
                self._conclude()

    def on_records(self, records: Sequence[BatchRecord]) -> None:
        """Watches the floor: the lowest of what a window of training batches left allocated."""
        if self._left:
            return
        for record in records:
            if record.stage is not Stage.TRAIN:
                continue
            end = record.allocated_end_bytes
            if end is None:
                self._without += 1
                continue
            self._seen += 1
            has_risen = self._seen > WARM_UP and self._floor.push(end) and self._floor.batches > 0
            if has_risen and self._floor.risen > MIN_SHARE * (self.watch.device_total_bytes or 0):
                self._floor = Floor(WINDOW, RISES)
                self._begin()
        if self._looks >= len(BATCHES) or self._without > PATIENCE:
            self.unsubscribe("on_records")

    def remove(self) -> None:
        """Switches off a history that is still on."""
        self._left = 0
        self._recording.end()

    def _begin(self) -> None:
        if not self._recording.is_free:
            return  # the user's own recording: hands off
        self._left, self._begun = BATCHES[self._looks], self.watch.batch
        self._looks += 1
        self.hear("on_batch_end")
        self._recording.begin()

    def _conclude(self) -> None:
        timeline = self._recording.read()
        batches, times = BATCHES[self._looks - 1], TIMES[self._looks - 1]
        found = surviving(timeline, at_least=times, newest=len(timeline) // batches)
        found = found or swelling(timeline, at_least=times)
        for place, _, nbytes in found[:3]:
            self.report(SurvivingAllocations(**self.watch.now, place=place, bytes=nbytes, batches=batches))


def surviving(timeline: AllocationTimeline, *, at_least: int, newest: int = 0) -> list[tuple[Place, int, int]]:
    """The user's lines whose allocations outlive the trace, most bytes first.

    Args:
        timeline: Some batches.
        at_least: Surviving allocations of a line that make it worth telling: about one a batch.
        newest: Events of the last batch: what it allocated, its gradients say, has survived nothing yet.
    """
    last = len(timeline) - newest
    sizes: dict[Frame, list[int]] = defaultdict(list)
    for block in timeline.blocks:
        if block.freed is None and block.made < last and (line := timeline.user_line(block.made)) is not None:
            sizes[line].append(block.size)
    found = [(_place(line), len(each), sum(each)) for line, each in sizes.items() if len(each) >= at_least]
    return sorted(found, key=lambda one: -one[2])


def swelling(timeline: AllocationTimeline, *, at_least: int) -> list[tuple[Place, int, int]]:
    """The user's lines that make a larger tensor each time, of which the newest lives: ``x = torch.cat([x, new])``."""
    blocks: dict[Frame, list[Block]] = defaultdict(list)
    for block in timeline.blocks:
        if (line := timeline.user_line(block.made)) is not None:
            blocks[line].append(block)
    found = []
    for line, made in blocks.items():
        alive = [block for block in made if block.freed is None]
        if not alive:
            continue
        # Beside small ones of the same line.
        largest = [block.size for block in made if block.size >= alive[-1].size / 4]
        rises = sum(after > before for before, after in itertools.pairwise(largest))
        if rises >= at_least and rises >= len(largest) - 2:
            name, source = assigned_at(line.filename, line.line) or (None, None)
            found.append((replace(_place(line), holder=name, source=source), rises, largest[-1] - largest[0]))
    return sorted(found, key=lambda one: -one[2])


def _place(line: Frame) -> Place:
    return Place(file=line.filename, line=line.line, function=line.name)
