"""Input shapes of a run, each stored once under a number that records refer to. No torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

MOST: Final = 4096
"""Different shapes that are told apart; later ones are unknown."""


@final
class ShapeTable:
    """Numbers for shapes, in the order in which they are met.

    Args:
        told: Called with the number of a new one and its entries (name, shape, dtype).
    """

    def __init__(self, told: Callable[[int, list[Any]], None]) -> None:
        self._told = told
        self._numbers: dict[Any, int] = {}
        self._last: tuple[Any, int | None] = None, None
        self.texts: list[list[Any]] = []
        """The entries of each number."""

    def number_of(self, shapes: Any) -> int | None:
        """The number of a batch's shapes (nested tuples, `memguard.evidence.shapes`); None where they have none."""
        last, number = self._last
        if shapes is last:  # as in most batches; to hash the nest takes longer than the rest
            return number
        try:
            number = self._numbers.get(shapes)
        except TypeError:  # holds what cannot be hashed: no shape that can be compared
            return None
        if number is None and len(self.texts) < MOST:
            number = self._numbers[shapes] = len(self.texts)
            self.texts.append([list(entry) for entry in shapes])
            self._told(number, self.texts[-1])
        self._last = shapes, number
        return number
