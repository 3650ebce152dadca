"""The floor of one value over the training batches, shared by the growth rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from memguard.records.stats import BatchRecord, Run, Series, Stage
from memguard.records.step_floor import StepFloor
from memguard.rules.growth_test import GrowthTest, Outlook, outlook


@final
class TrainingFloor:
    """Where a value leads that is read after each batch of training.

    Args:
        ratchet: Watches the values.
    """

    def __init__(self, ratchet: GrowthTest) -> None:
        self._ratchet = ratchet
        self._steps = StepFloor()
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
        found = self.observe_alike((record,), run, end=end, peak=peak, limit=limit)
        return found[0][1] if found else None

    def observe_alike(
        self, records: Series, run: Run, *, end: int, peak: int, limit: Callable[[], int | None]
    ) -> list[tuple[BatchRecord, Outlook]]:
        """Some more that are alike: the outlooks, each with the batch after which it shows."""
        if records[0].epoch != self._epoch:
            if self._epoch is not None:
                self._ratchet.epoch_end()
            self._epoch = records[0].epoch
        if peak > self._peak:
            self._peak = peak
        end = self._steps.push(end, records[-1].optimizer_steps, len(records))
        shown, seen = [], 0
        while seen < len(records):
            times = min(self._ratchet.to_go, len(records) - seen)
            seen += times
            if self._ratchet.push(end, times, records[seen - times].batch):
                last = records[seen - 1]
                found = self._lead(last, run, limit)
                if found is not None:
                    shown.append((last, found))
        return shown

    def _lead(self, record: BatchRecord, run: Run, limit: Callable[[], int | None]) -> Outlook | None:
        """Where it leads, as of a batch that completed a window."""
        if (most := limit()) is None:
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
