"""Whether old graphs are alive because a recurrent state carries them and backwards run through them."""

from __future__ import annotations

import linecache
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from memguard.evidence.graph_tracker import ForwardGraph
from memguard.evidence.graphs.periodic_graphs import FEW, FEWEST
from memguard.evidence.naming.holders import Holder
from memguard.source.cuts import is_cut
from memguard.source.resets import Reset, reset_of

MIN_CHAIN = 16
"""Forwards in a row that each later backward runs through again: fewer may be a window that is meant."""
SHORT_CHAIN = 10
"""The same where the source never cuts the state that carries them."""
RECURSION = 6
"""The same where each backward doubles the graph: the sixth runs through sixty-four times as much as the first."""


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
        if len(chain) < MIN_CHAIN and not _always_keeps(chain[-1]):
            continue
        if is_chained(chain) and is_chained(chain[half:]) and chain[0].uses >= chain[half].uses + half // 2:
            return chain
    return []


def find_recursion(marks: Iterable[ForwardGraph]) -> list[ForwardGraph]:
    """The forwards in eval mode that every later backward with ``create_graph`` ran through once more, oldest first.

    A vector that is multiplied by a Hessian again and again with the graph of the last product: each is twice as large.
    Unrolled steps of an inner loop, on which somebody trains, are run through once each, and then all at once.
    """
    by_model: dict[int, list[ForwardGraph]] = defaultdict(list)
    for mark in marks:
        if mark.created and not mark.training:
            by_model[mark.module].append(mark)
    for chain in by_model.values():
        run: list[ForwardGraph] = []
        for mark in chain:
            run = [*run, mark] if run and run[-1].uses == mark.uses + 1 else [mark]
            if len({mark.batch for mark in run}) >= RECURSION:
                return run
    return []


def chain_needed(holder: Holder, spent: bool = False) -> int | None:
    """How long a chain must be with this holder; None where the source cuts it, so that a window may be meant."""
    place = holder.place
    emptied = reset_of(place.file, place.line, place.holder)
    attribute = "." in (place.holder or "")
    if not holder.grows or emptied is Reset.HERE or (attribute and emptied is not Reset.NEVER):
        return None
    return None if is_cut(place.file, place.line, place.holder) else SHORT_CHAIN


def recursion_needed(holder: Holder, spent: bool = False) -> int | None:
    """The same where each backward doubles the graph: no window is meant, whatever the source does at its end."""
    return RECURSION if holder.grows else None


def carried_needed(holder: Holder, spent: bool) -> int | None:
    """How many graphs at intervals suffice where new ones reach them; None where the source ever begins it anew.

    An actor's, which acts once for every few batches: through its state the last graph reaches as far back as that of
    one that acts in each.

    Args:
        holder: What keeps them.
        spent: Whether no backward can run through them any more, for the weights were changed.
    """
    place = holder.place
    if not (holder.grows and holder.certain) or holder.exception or is_cut(place.file, place.line, place.holder):
        return None
    if reset_of(place.file, place.line, place.holder, carries=True) is not Reset.NEVER:
        return None
    return FEWEST if spent else FEW


def _always_keeps(mark: ForwardGraph) -> bool:
    """Whether the backward keeps its graph whatever the segment: ``retain_graph=True``, not a condition."""
    place = mark.kept
    if place is None or place.file is None or place.line is None:
        return False
    return re.search(r"retain_graph\s*=\s*True\s*[,)]", linecache.getline(place.file, place.line)) is not None
