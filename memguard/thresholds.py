"""Shares of the device and of the peak from which memory is worth a remark, a warning, an alarm: why each."""

from __future__ import annotations

from typing import Final

WORD_SHARE: Final = 0.001
"""Of the device. What holds less, and does not grow, changes nothing that anybody could measure: no word."""
WORD_BYTES: Final = 1024**2
"""The same where nobody counts the device's bytes, of what is cleared in time: the moves of a roll-out."""
LARGE_SHARE: Final = 0.2
"""Of the device. What one holder keeps of it for more than a moment decides which batch fits: a warning."""
PEAK_SHARE: Final = 0.5
"""Of the highest peak, together with `NOTABLE_SHARE` of the device: without it the run would need half the memory."""
NOTABLE_SHARE: Final = 0.1
"""Of the device, by which memory that is kept may rise in a run before silence about it would be false."""
FULL_SHARE: Final = 0.97
"""Of the device, reserved: with retries of the allocator, the run was at its edge."""
ALIKE: Final = 0.03
"""By which the sizes of two elements may differ and still be the same: an allocator rounds, a model has buffers."""
EXPLAINED: Final = 0.5
"""Share of a growth that a named cause must account for, in bytes, to be told as what is behind it."""
NEARLY: Final = 0.9
"""Share from which on two counts, or two growths, are taken to be of the same."""

DEVICE_SHARE, WITHOUT_DEVICE = 0.03, 64 * 1024**2
"""Of the device; where its size is unknown, so many bytes."""
MUCH_OF_PEAK, LEAST = 0.2, 1024**2
"""Of a batch's peak: there the batch could be so much larger, however large the device is."""
SOME_OF_PEAK, LEAST_REMARK = 0.05, 256 * 1024
"""Of a batch's peak: from there on it is worth a remark, no more than that."""


def least_of_device(total_bytes: int | None) -> int:
    """Bytes from which on it is worth a word on a device of that size."""
    return int(DEVICE_SHARE * total_bytes) if total_bytes else WITHOUT_DEVICE


def much_of(peak_bytes: float) -> int:
    """Bytes from which on it is worth a word for what it adds to a peak."""
    return max(int(MUCH_OF_PEAK * peak_bytes), LEAST)


def some_of(peak_bytes: float) -> int:
    """Bytes from which on it is worth a remark for what it adds to a peak."""
    return max(int(SOME_OF_PEAK * peak_bytes), LEAST_REMARK)


def least_of_peak(peak_bytes: int | None) -> int | None:
    """The same as `much_of`; None where the peak is unknown."""
    return None if peak_bytes is None else much_of(peak_bytes)


def least_of_remark(peak_bytes: int | None) -> int | None:
    """The same as `some_of`; None where the peak is unknown."""
    return None if peak_bytes is None else some_of(peak_bytes)
