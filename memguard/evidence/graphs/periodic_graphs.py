"""Old graphs: how many are evidence enough, and which come from the same place.

Fewer suffice where they are kept at intervals or a state carries them. A reported cause does not hide a second one.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias, final

from memguard.evidence.graph_tracker import ForwardGraph
from memguard.evidence.naming.holders import Holder
from memguard.records.facts import Line, Place, RetainedGraphs
from memguard.records.stats import Stage
from memguard.source.bounds import Reset, reset_of

SPAN = 9
"""Batches since the oldest of them: as long as it takes to tell those that come with every batch."""
STEPS = 3
"""Optimizer steps that each survived to which no backward came."""
SPENT_STEPS, FIRST_STEPS = 1, 2
"""Those after the backward that freed it, so that no other can follow; and of the oldest of them."""
MIN_BATCHES = 8
"""Batches of which a graph must be alive where nothing else is known: no last-k window keeps as many."""
FEWEST, FEW = 3, 5
"""Graphs that suffice where nothing ever empties what keeps them, and where less is known."""


@final
class PeriodicGraphs(NamedTuple):
    """Forwards of one model whose graphs are kept at intervals."""

    marks: list[ForwardGraph]
    """The oldest first."""
    unseen: bool
    """Whether more should have come, in batches without a look: the holder's length shows whether they did."""

    @property
    def batches(self) -> set[int]:
        """The batches that they are of."""
        return {mark.batch for mark in self.marks}

    @property
    def in_steps(self) -> int:
        """How many there are, if they are micro-batches of so few steps that each step may have kept its own."""
        return len(self.batches) if len({mark.steps for mark in self.marks}) < FEWEST else 0


def find_regular(
    marks: Iterable[ForwardGraph], *, used: bool, batch: int, steps: int, unseen: int = -1
) -> PeriodicGraphs | None:
    """The forwards of one model whose graphs are kept at intervals; None without such.

    Args:
        marks: All whose graphs are alive.
        used: Whether a backward is to have used them up, else none is to have come.
        batch: The batch that ends.
        steps: Optimizer steps so far.
        unseen: The last batch without a look; -1 if there is none.
    """
    by_model: dict[tuple[int, bool], list[ForwardGraph]] = defaultdict(list)
    for mark in marks:
        is_meant = mark.used is used and (mark.training or not used)  # in evaluation: a look at the end of each epoch
        if is_meant and mark.kept is None and mark.batch < batch - 1:
            by_model[mark.module, mark.training].append(mark)
    for kept in by_model.values():
        if len(kept) < FEWEST or batch - kept[0].batch < SPAN:
            continue
        old = [mark for mark in kept if _is_out_of_date(mark, steps)]
        batches = sorted({mark.batch for mark in kept})
        gaps = [after - before for before, after in itertools.pairwise(batches)]
        count = len({mark.batch for mark in old})
        if count < FEWEST or (used and steps - (old[0].spent or 0) < FIRST_STEPS):
            continue
        late = batch - 2 - batches[-1] - max(gaps)
        if (late >= 0 and not (unseen > batches[-1] and late >= max(gaps))) or old[0].uses > old[-1].uses:
            continue  # no more have come, or a state leads back into them
        if count >= FEW or len(set(gaps)) == 1:
            return PeriodicGraphs(old, late >= 0)
    return None


def _is_out_of_date(mark: ForwardGraph, steps: int) -> bool:
    if mark.used:
        return mark.spent is not None and steps - mark.spent >= SPENT_STEPS
    return steps - mark.steps >= STEPS


def graphs_needed(
    holder: Holder, spent: bool, *, length: int = 0, in_steps: int = 0, carried: bool = False
) -> int | None:
    """How many such graphs suffice with this holder; None where it may be a window that is meant.

    Args:
        holder: What keeps them.
        spent: Whether no backward can run through them any more: one has used them up, or the weights were changed.
        length: What the holder must be longer than: than what is known, where more may have come unseen.
        in_steps: How many there are of few steps. A container that has not all of them is the last step's, and beside
            it is the one before, in the variable of whoever called for it.
        carried: Whether new ones reach them: of a state that is ever begun anew a window may be meant.
    """
    if not (holder.grows and holder.certain) or holder.exception or holder.length <= length:
        return None
    if 1 < holder.length < in_steps:
        return in_steps + 1
    place = holder.place
    emptied = reset_of(place.file, place.line, place.holder)
    if emptied is Reset.NEVER:
        return FEWEST if spent else FEW
    return FEW if spent and emptied is Reset.ELSEWHERE and not carried else None


SHORT_CHAIN = 10
"""Forwards in a row that each later backward runs through again, where the source never begins or cuts their state."""
MIN_CHAIN = 16
"""The same where it does: fewer may be a window that is meant."""


def is_chained(marks: Sequence[ForwardGraph]) -> bool:
    """Whether backwards of later batches ran through the graphs of the earlier ones too: oldest first."""
    first, last = marks[0], marks[-1]
    return first.uses >= 2 * last.uses and first.uses >= last.uses + len(marks) // 2


def find_chain(marks: Iterable[ForwardGraph], least: int = MIN_CHAIN) -> list[ForwardGraph]:
    """The forwards of one model that every later backward ran through again, oldest first; none without such a chain.

    Nothing but a state does that, with ``retain_graph=True``: a loss that hangs on one forward which many others share
    (an encoder's, once for all tasks) runs through the others only once.
    """
    by_model: dict[int, list[ForwardGraph]] = defaultdict(list)
    for mark in marks:
        if mark.training and mark.used:
            by_model[mark.module].append(mark)
    for chain in by_model.values():
        half = len(chain) // 2
        if len({mark.batch for mark in chain}) < least:
            continue
        if is_chained(chain) and is_chained(chain[half:]) and chain[0].uses >= chain[half].uses + half // 2:
            return chain
    return []


def chain_needed(holder: Holder, spent: bool) -> int | None:
    """How long a chain must be with this holder; None where a window may be meant."""
    place = holder.place
    never = (Reset.NEVER,) if "." in (place.holder or "") else (Reset.NEVER, Reset.ELSEWHERE)
    is_endless = holder.grows and reset_of(place.file, place.line, place.holder) in never
    return SHORT_CHAIN if is_endless else None


AGAIN = 4
"""A cause is examined again when so many times more graphs are alive."""
MAX_CAUSES = 8
"""Origins that are examined by themselves; all later ones count to the last."""

Origin: TypeAlias = tuple[bool, Place | None]
"""What the graphs that one statement keeps have in common: whether a backward came, and the line that called the model.

Not the model, which may be a new one in every batch."""


@final
class LeakGroup:
    """Old graphs that are examined together.

    Attributes:
        origins: Where they come from; empty until the first look that had a result.
        alive: Batches of which they were alive at the end of the last examined one that had any.
        again: Batches of which they must be alive for the next look.
        lines: Those that findings name.
        carried: Whether a new graph reaches them, though it did not reach those examined before.
        facts: What was reported of them, one for each statement that keeps them.
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

    def counted(self, batch: int, followed: Callable[[Stage, int, int], int]) -> Iterator[RetainedGraphs]:
        """The reported facts with the graphs that are alive now, where these are more; the size of each graph stays.

        Args:
            batch: The newest.
            followed: How many batches of a stage were followed, from one to another.
        """
        first, last = self.range
        for fact in self.facts if self.facts and self.alive > self.facts[0].graphs else ():
            yield replace(
                fact,
                batch=batch,
                graphs=self.alive,
                first_batch=first,
                last_batch=last,
                bytes=None if fact.bytes is None else round(fact.bytes / fact.graphs * self.alive),
                followed=followed(fact.stage, first, last),
            )


@final
class LeakGroups:
    """Those of training, or those of evaluation."""

    def __init__(self) -> None:
        self._looked: list[LeakGroup] = []
        self.next = LeakGroup()
        """That of the graphs which come from elsewhere than all that were examined."""

    @property
    def first(self) -> LeakGroup | None:
        """The one that was examined first."""
        return self._looked[0] if self._looked else None

    def of(self, mark: ForwardGraph) -> LeakGroup:
        """The cause that a graph counts to."""
        origin = mark.used, mark.line
        for cause in self._looked:
            if origin in cause.origins:
                return cause
        return self.next if len(self._looked) < MAX_CAUSES else self._looked[-1]

    def sorted(self, marks: Sequence[ForwardGraph]) -> list[tuple[LeakGroup, list[ForwardGraph]]]:
        """Graphs by their cause."""
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
        """What was reported of those that were alive at the last look, counted once more."""
        return [fact for cause in self._looked if cause.at == last_look for fact in cause.counted(batch, followed)]

    def is_told_elsewhere(self, cause: LeakGroup, line: Line) -> bool:
        """Whether another cause was told at a line: then this is the same one, of another model or call."""
        return any(line in other.lines for other in self._looked if other is not cause)
