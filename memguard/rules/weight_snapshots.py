"""Copies of the weights that pile up under one name: reported by MG308, not by MG301."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from memguard.records.facts import Fact, KeptOutputs, ModelCopies

TIMES = 4
"""What an element may hold of a copy: an optimizer's state lies beside the weights."""
LEAST = 0.9
"""What it must hold, where only one was seen."""
MIN_SHARE = 0.01
"""Of the device, taken by copies under one name, or by a checkpoint: those of a small model matter to nobody."""


@final
class Snapshots:
    """The pile of copies that was told last."""

    def __init__(self) -> None:
        self._pile: ModelCopies | None = None
        self._one: ModelCopies | None = None
        """Copies no two of which lay under one name when they were told; others may have come since."""

    def learn(self, fact: Fact) -> None:
        """Remembers copies of which several lie under one name, or models of which more come with each round."""
        if not isinstance(fact, ModelCopies) or fact.averaged or fact.passing:
            return
        if is_piled(fact):
            self._pile = fact
        else:
            self._one = fact

    def explain(self, fact: KeptOutputs) -> ModelCopies | None:
        """The pile that something kept is, by its place and by the size of its elements."""
        if not fact.tensors or fact.place.file is None:
            return None
        each, place = fact.bytes / fact.tensors, fact.place
        pile, one = self._pile, self._one
        if pile is not None and place.file == pile.place.file:
            same = place.holder == pile.place.holder or place.line == pile.place.line
            if same and each <= TIMES * pile.bytes / pile.copies:
                return pile
        if one is None or (place.file, place.line, place.holder) != (one.place.file, one.place.line, one.place.holder):
            return None
        copy = one.bytes / one.copies
        return replace(one, copies=fact.tensors, bytes=fact.bytes) if LEAST * copy <= each <= TIMES * copy else None


def is_piled(fact: ModelCopies) -> bool:
    """Whether there are more than one under a name, which no function ends with, and which has no limit."""
    return fact.copies > max(len(fact.holders), 1) and not fact.passing and not fact.limited


def is_large_pile(fact: ModelCopies, limit: int | None) -> bool:
    """Whether they are that, and worth a warning on a device of that size."""
    return is_piled(fact) and (limit is None or fact.bytes >= MIN_SHARE * limit)
