"""Old graphs grouped by where they come from, so that a reported cause does not hide a second one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias, final

from memguard.evidence.graph_tracker import ForwardGraph
from memguard.evidence.graphs.periodic_graphs import MIN_BATCHES
from memguard.records.facts import Place, RetainedGraphs
from memguard.records.stats import Stage

MORE, MANY = 1.25, 64
"""Times the graphs that were told of, at which they are counted anew, and how many it takes for that to matter."""
AGAIN = 4
"""A cause is looked at again when so many times more graphs are alive."""
MAX_CAUSES = 8
"""So many origins are looked at by themselves; what else comes counts to the last."""

Line: TypeAlias = tuple[str | None, int | None]
Origin: TypeAlias = tuple[bool, Place | None]
"""What the graphs that one statement keeps have in common: whether a backward came, and the line that called the model.

Not the model, which may be a new one in every batch."""


@final
class LeakGroup:
    """Old graphs that are looked at together.

    Attributes:
        origins: Where they come from; empty until the first look that had a result.
        alive: Batches of which they were alive at the end of the last one that was looked at and had any.
        again: Batches of which they must be alive for the next look.
        lines: Where they were told.
        carried: Whether a new graph reaches them, though it did not reach those that were looked at before.
        facts: What was told of them, one for each statement that keeps them.
        range: The first and the last of the batches of which they were alive.
        at: The batch after which that was seen.
    """

    def __init__(self) -> None:
        self.origins: set[Origin] = set()
        self.alive = 0
        self.again = MIN_BATCHES
        self.lines: set[Line] = set()
        self.carried = False
        self.facts: list[RetainedGraphs] = []
        self.range, self.at = (0, 0), -1

    def seen(self, batches: Collection[int], at: int) -> None:
        """Takes note of the batches of which a graph is alive after one."""
        self.alive, self.range, self.at = len(batches), (min(batches), max(batches)), at

    def counted(
        self, batch: int, followed: Callable[[Stage, int, int], int], *, at_end: bool = False
    ) -> list[RetainedGraphs]:
        """What was told, counted anew where there are many more by now; the size of each graph is taken as it was.

        Args:
            batch: The newest.
            followed: How many batches of a stage were followed, from one to another.
            at_end: Whether one more is enough.
        """
        told = self.facts[0].graphs if self.facts else 0
        if not told or self.alive < (told + 1 if at_end else max(MORE * told, MANY)):
            return []
        first, last = self.range
        for at, fact in enumerate(self.facts):
            nbytes = None if fact.bytes is None else round(fact.bytes / fact.graphs * self.alive)
            self.facts[at] = replace(
                fact,
                batch=batch,
                graphs=self.alive,
                first_batch=first,
                last_batch=last,
                bytes=nbytes,
                followed=followed(fact.stage, first, last),
            )
        return self.facts


@final
class LeakGroups:
    """Those of training, or those of evaluation."""

    def __init__(self) -> None:
        self._looked: list[LeakGroup] = []
        self.next = LeakGroup()
        """That of the graphs which come from elsewhere than all that were looked at."""

    @property
    def first(self) -> LeakGroup | None:
        """The one that was looked at first."""
        return self._looked[0] if self._looked else None

    def of(self, mark: ForwardGraph) -> LeakGroup:
        """The cause that a graph counts to."""
        if not self._looked:
            return self.next
        origin = mark.used, mark.line
        for cause in self._looked:
            if origin in cause.origins:
                return cause
        return self.next if len(self._looked) < MAX_CAUSES else self._looked[-1]

    def sorted(self, marks: Sequence[ForwardGraph]) -> list[tuple[LeakGroup, list[ForwardGraph]]]:
        """Graphs by their cause."""
        if not self._looked:
            return [(self.next, list(marks))] if marks else []
        found: dict[LeakGroup, list[ForwardGraph]] = {}
        for mark in marks:
            found.setdefault(self.of(mark), []).append(mark)
        return list(found.items())

    def looked(self, cause: LeakGroup, marks: Iterable[ForwardGraph], batches: int) -> None:
        """A look at graphs of a cause had a result, or is not to be repeated soon."""
        cause.again = AGAIN * batches
        cause.origins.update((mark.used, mark.line) for mark in marks)
        if cause is self.next:
            self._looked.append(cause)
            self.next = LeakGroup()

    def counted_at_end(
        self, batch: int, last_look: int, followed: Callable[[Stage, int, int], int]
    ) -> list[RetainedGraphs]:
        """What was told of those that were alive at the last look, counted once more."""
        alive = [cause for cause in self._looked if cause.at == last_look]
        return [fact for cause in alive for fact in cause.counted(batch, followed, at_end=True)]

    def is_told_elsewhere(self, cause: LeakGroup, line: Line) -> bool:
        """Whether another cause was told at a line: then this is the same one, of another model or call."""
        return any(line in other.lines for other in self._looked if other is not cause)
