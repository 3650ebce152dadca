"""How many forwards a batch has: one with many more is unlike the others."""

from __future__ import annotations

from typing import final


@final
class ForwardCount:
    """Counts the forwards of root models, batch by batch."""

    def __init__(self) -> None:
        self.now = 0
        """In the open batch."""
        self.usual = 0
        """The most in a finished training batch."""
        self._batch = -1
        self._training = False

    def forward(self, batch: int, training: bool) -> None:
        """A root model is called.

        Args:
            batch: The open batch.
            training: Whether the model is in training mode.
        """
        if batch != self._batch:
            if self._training and self.now > self.usual:
                self.usual = self.now
            self.now, self._batch, self._training = 0, batch, training
        self.now += 1
