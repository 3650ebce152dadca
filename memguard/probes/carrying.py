"""Whether graphs of earlier batches are there because a state goes from batch to batch: backwards run through them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from memguard.probes.ledger import Mark

MIN_CHAIN = 16
"""Forwards in a row that each later backward runs through again: fewer may be a window that is meant."""


def is_chained(marks: Sequence[Mark]) -> bool:
    """Whether backwards of later batches ran through the graphs of the earlier ones too: oldest first."""
    first, last = marks[0], marks[-1]
    return first.uses >= 2 * last.uses and first.uses >= last.uses + len(marks) // 2


def find_chain(marks: Iterable[Mark]) -> list[Mark]:
    """The forwards of one model that every later backward ran through again, oldest first; none without such a chain.

    Nothing but a state does that, with ``retain_graph=True``: a loss that hangs on one forward which many others share
    (an encoder's, once for all tasks) runs through the others only once.
    """
    by_model: dict[int, list[Mark]] = defaultdict(list)
    for mark in marks:
        if mark.training and mark.used:
            by_model[mark.module].append(mark)
    for chain in by_model.values():
        half = len(chain) // 2
        if len({mark.batch for mark in chain}) < MIN_CHAIN:
            continue
        if is_chained(chain) and is_chained(chain[half:]) and chain[0].uses >= chain[half].uses + half // 2:
            return chain
    return []
