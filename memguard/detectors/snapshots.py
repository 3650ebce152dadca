"""Copies of the weights that pile up under one name: what MG301 would tell of them is MG308's to tell."""

from __future__ import annotations

from typing import final

from memguard.facts import Fact, KeptOutputs, ModelCopies

TIMES = 4
"""What an element may hold of a copy: an optimizer's state lies beside the weights."""


@final
class Snapshots:
    """The pile of copies that was told last."""

    def __init__(self) -> None:
        self._pile: ModelCopies | None = None

    def learn(self, fact: Fact) -> None:
        """Remembers copies of which several lie under one name, or models of which more come with each round."""
        if isinstance(fact, ModelCopies) and is_piled(fact) and not fact.averaged:
            self._pile = fact

    def explain(self, fact: KeptOutputs) -> ModelCopies | None:
        """The pile that something kept is, by its place and by the size of its elements."""
        pile = self._pile
        if pile is None or not fact.tensors or fact.place.file is None or fact.place.file != pile.place.file:
            return None
        same = fact.place.holder == pile.place.holder or fact.place.line == pile.place.line
        alike = fact.bytes / fact.tensors <= TIMES * pile.bytes / pile.copies
        return pile if same and alike else None


def is_piled(fact: ModelCopies) -> bool:
    """Whether there are more than one under a name, which no function ends with."""
    return fact.copies > max(len(fact.holders), 1) and not fact.passing
