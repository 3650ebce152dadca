"""The floor of one value over the batches of training: how the rules of growth watch it."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from memguard.detectors.ratchet import Outlook, Ratchet, outlook
from memguard.stats import BatchRecord, Run, Stage


@final
class TrainingFloor:
    """Where a value leads that is read after each batch of training.

    Args:
        ratchet: Watches the values.
    """

    def __init__(self, ratchet: Ratchet) -> None:
        self._ratchet = ratchet
        self._peak = 0
        self._epoch: int | None = None

    def observe(
        self, record: BatchRecord, run: Run, *, end: int, peak: int, limit: Callable[[], int | None]
    ) -> Outlook | None:
        """One more batch of training; an outlook if the value will reach the limit.

        Args:
            record: The batch.
            run: The run.
            end: The value after the batch.
            peak: Its highest within the batch.
            limit: Tells what it may reach, None if nobody knows; asked after some batches only.
        """
        if record.epoch != self._epoch:
            if self._epoch is not None:
                self._ratchet.epoch_end()
            self._epoch = record.epoch
        if peak > self._peak:
            self._peak = peak
        if not self._ratchet.push(end) or (most := limit()) is None:
            return None
        length = run.batches_per_epoch.get(Stage.TRAIN)
        return outlook(
            self._ratchet,
            peak=self._peak,
            limit=most,
            batches_left=run.batches_left,
            epoch_left=length - record.index - 1 if length is not None and record.index is not None else None,
            epoch_batches=length,
        )
