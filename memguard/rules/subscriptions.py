"""Which rules need a record: most batches repeat the one before and concern few rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from memguard.records.stats import BatchRecord, Run
from memguard.rules.interface import CROWDED, DEVICE, EVERY, PEAKS, READINGS, RETRIES, Rule

FULL = 0.8
"""Share of the device from which on it counts as nearly full."""

Observer = tuple[str, Rule]
"""A rule, after its name among memguard's parts."""


def part_of(rule: Rule) -> str:
    """What a rule is called where parts of memguard are switched off."""
    return f"rule {rule.code}"


@final
class Subscriptions:
    """Sorts records by what they tell.

    Args:
        detectors: The rules, in the order in which they are to see a record.
    """

    def __init__(self, detectors: Sequence[Rule]) -> None:
        self._observing = [d for d in detectors if type(d).observe is not Rule.observe]
        self._observers: dict[int, tuple[Observer, ...]] = {}
        self._peak = -1
        self._slow: object = None
        self._was_crowded = False

    def of(self, record: BatchRecord, run: Run) -> tuple[Observer, ...]:
        """The rules that hear of a record; call it for each, in order.

        Of a series only for the first two: who does not hear of the second hears of none after it.
        """
        told = EVERY
        if record.allocated_end_bytes is not None or record.device_used_bytes is not None:
            told = DEVICE
        peak = record.allocated_peak_bytes
        if peak is not None and peak > self._peak:
            self._peak = peak
            told |= PEAKS
        if run.slow is not self._slow:
            self._slow = run.slow
            told |= READINGS
        if record.num_alloc_retries:
            told |= RETRIES
        crowded = _is_crowded(record, run)
        if crowded or self._was_crowded:
            self._was_crowded = crowded
            told |= CROWDED
        observers = self._observers.get(told)
        if observers is None:
            observers = self._observers[told] = tuple(
                (part_of(d), d) for d in self._observing if d.hears == EVERY or d.hears & told
            )
        return observers


def _is_crowded(record: BatchRecord, run: Run) -> bool:
    """Whether what was reserved at the peak, and what others held, nearly fill the device, or this process's share."""
    total_bytes, limit = run.device_total_bytes, run.limit_bytes
    if not total_bytes:
        return False
    held, used = record.reserved_peak_bytes or record.allocated_peak_bytes or 0, record.device_used_bytes
    if limit is not None and held > FULL * limit:
        return True
    if used is not None and record.reserved_bytes is not None and used > record.reserved_bytes:
        held += used - record.reserved_bytes
    return held > FULL * total_bytes
