"""Sizes below which a variable that lives too long is not reported."""

from __future__ import annotations

from memguard.records.stats import BatchRecord

DEVICE_SHARE, WITHOUT_DEVICE = 0.03, 64 * 1024**2
"""Of the device; where its size is unknown, so many bytes."""
PEAK_SHARE, LEAST = 0.2, 1024**2
"""Of a batch's peak: there the batch could be so much larger, however large the device is."""
REMARK_SHARE, LEAST_REMARK = 0.05, 256 * 1024
"""Of a batch's peak: from there on it is worth a remark, no more than that."""


def least_of_device(total_bytes: int | None) -> int:
    """Bytes from which on it is worth a word on a device of that size."""
    return int(DEVICE_SHARE * total_bytes) if total_bytes else WITHOUT_DEVICE


def least_of_peak(record: BatchRecord | None) -> int | None:
    """Bytes from which on it is worth a word for what it adds to a batch's peak; None where that is unknown."""
    peak = record.allocated_peak_bytes if record is not None else None
    return None if peak is None else max(int(PEAK_SHARE * peak), LEAST)


def least_of_remark(record: BatchRecord | None) -> int | None:
    """Bytes from which on it is worth a remark for what it adds to a batch's peak; None where that is unknown."""
    peak = record.allocated_peak_bytes if record is not None else None
    return None if peak is None else max(int(REMARK_SHARE * peak), LEAST_REMARK)
