"""What is allocated once gradients have served: the floor of a training that accumulates over batches. No torch."""

from __future__ import annotations

from typing import Final, final

LONGEST: Final = 4
"""Times the longest step so far after which no step is waited for any more."""
LEAST: Final = 64
"""Batches without a step that are waited for at least."""


@final
class StepFloor:
    """Replaces the value after a batch by the one after the newest optimizer step.

    What a step's micro-batches leave behind until it comes is no growth. Where each batch has its step, where nothing
    has stepped yet, and where no step comes any more, it is the batch's own value.
    """

    __slots__ = ("_longest", "_since", "_steps", "_value")

    def __init__(self) -> None:
        self._steps = self._since = self._longest = 0
        self._value: int | None = None

    def push(self, value: int, steps: int, times: int = 1) -> int:
        """The value that counts.

        Args:
            value: The one after a batch.
            steps: Optimizer steps of the run by then.
            times: Batches in a row after which it was the same.
        """
        if steps != self._steps:
            self._longest = max(self._longest, self._since + 1)
            self._steps, self._since, self._value = steps, 0, value
            return value
        self._since += times
        if self._value is None or self._since > max(LONGEST * self._longest, LEAST):
            return value
        return self._value
