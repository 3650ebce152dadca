"""When everything reachable is scanned, and how far a scan has come."""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType
from typing import final

from memguard.evidence.interface import ProbeContext
from memguard.evidence.kept.incremental_scan import IncrementalScan, Suspects
from memguard.heap.history import HeapHistory
from memguard.heap.walk import Link, SlicedWalk

BEGINS = (6, 18, 48, 200, 212, 2000, 2012)
"""Batches of a stage from which on a round may begin; each goes on for as many batches as it needs."""

APART = 12
"""Batches between the two rounds that are asked for: what one of them meets for a moment is gone in the other."""

RESERVED = 3
"""Rounds that must be left for an end of an epoch to take one."""


@final
class ScanSchedule:
    """The rounds of one stage, or of one pass over the data in evaluation.

    Args:
        rests: Whether this pass is left out.
        before: Those of the pass before, with whose counts this one's are compared.
        away: Batches of other stages since then.

    Attributes:
        count: Batches that were looked at.
        batches: Batches of this stage: those since the last look count as of the stage in which the next one is taken.
        is_open: Whether a round is under way.
        history: What the rounds so far saw.
        has_looked: Whether something that this round suspects was looked at; what comes later waits for its end.
        waiting: Containers that grew and were not looked at yet.
        confirmed: Storages of which only a small part was seen in each of the last two rounds.
    """

    def __init__(self, *, rests: bool = False, before: ScanSchedule | None = None, away: int = 0) -> None:
        self.count = self.batches = 0
        self.history: HeapHistory = HeapHistory() if before is None else before.history
        self.history.skip(away)
        self.confirmed: frozenset[int] = frozenset()
        """What one batch holds for a moment is no pin."""
        self._pinned: frozenset[int] = frozenset()
        self.has_looked = False
        self.waiting: dict[int, tuple[int, int]] = {}
        self._begins = [] if rests else list(BEGINS)
        self._asked: list[int] = []
        self._walk: SlicedWalk | None = None
        self.is_open = False
        self._screening = IncrementalScan(self.history)
        self._at_begin: tuple[int, int | None, int | None] | None = None

    def is_due(self) -> bool:
        """Whether another round may begin; one that is still open ends there: what is near was met in it."""
        asked, begins = self._asked, self._begins
        return bool((asked and self.count >= asked[0]) or (begins and self.count >= begins[0]))

    def ask(self) -> None:
        """Two rounds are to be made now, besides those that are due: something was seen to grow."""
        self._asked = [self.count, self.count + APART]

    def _is_asked(self) -> bool:
        return bool(self._asked) and self.count >= self._asked[0]

    @property
    def is_unseen(self) -> bool:
        """Whether this pass was too short for its first round."""
        return 0 < self.count < BEGINS[0] and len(self._begins) == len(BEGINS)

    def is_worth_one_more(self, watch: ProbeContext, nbytes: int) -> bool:
        """Whether, at the end of an epoch, so many bytes are allocated more than when the last round began.

        The next one may be hundreds of batches away, where each of them is long; some are left for those.
        """
        record = watch.record
        now = record.allocated_end_bytes if record is not None else None
        before = self._at_begin[1] if self._at_begin is not None else None
        few = RESERVED <= len(self._begins) < len(BEGINS) - 2 and not self.is_open
        return few and now is not None and before is not None and now - before >= nbytes > 0

    def begin(self, watch: ProbeContext, host_bytes_per_batch: int) -> None:
        """Begins one; after the first two, only if something grew since the last: graphs' nodes lie in neither figure.

        Args:
            watch: The run.
            host_bytes_per_batch: By how much the process must have grown on the host to matter.
        """
        asked = self._is_asked()
        del (self._asked if asked else self._begins)[0]
        record, before = watch.record, self._at_begin
        allocated = record.allocated_end_bytes if record is not None else None
        resident = record.host_rss_bytes if record is not None else None
        if before is not None and len(self._begins) < len(BEGINS) - 2 and not asked:
            least = host_bytes_per_batch * (watch.batches - before[0])
            if not (grew(before[1], allocated) or grew(before[2], resident, least)):
                return
        self._at_begin = (watch.batches, allocated, resident)
        if self._walk is not None:
            self._end(self._screening.conclude())
        self.has_looked = False
        self._walk, self.is_open = SlicedWalk(watch.models), True
        self._screening = IncrementalScan(self.history)
        self.history.begin_round()

    def advance(self, watch: ProbeContext, frames: Sequence[FrameType], steps: int) -> Suspects | None:
        """Goes on for some steps; what it has come to.

        Args:
            watch: The run.
            frames: The user's frames as they stand now.
            steps: How many may be made: one for each object that is met or entered.
        """
        walk, screening = self._walk, self._screening
        if walk is None:
            return None
        self.history.batch, self.history.count = watch.batches, self.batches
        left = steps

        def visit(link: Link) -> None:
            nonlocal left
            left -= 1
            screening.visit(link)

        def is_enough() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        walk.advance(frames, watch.roots(), visit, is_enough)
        suspicions = screening.conclude()
        if walk.complete:
            self._end(suspicions)
        return suspicions

    def _end(self, suspicions: Suspects) -> None:
        self._walk, self.is_open = None, False
        self.confirmed = suspicions.pinned & self._pinned
        self._pinned = suspicions.pinned


def grew(before: int | None, now: int | None, by: int = 0) -> bool:
    """Whether a number of bytes grew by more than that, or is not known."""
    return before is None or now is None or now - before > by
