"""PyTorch's nested allocator statistics, read once and put into our own words."""

from __future__ import annotations

from typing import Any, NamedTuple, final

from memguard.stats import MemoryStats

Reading = dict[str, Any]
"""What ``torch._C._cuda_memoryStats`` returns: statistic -> pool -> {"current", "peak", "allocated", "freed"}."""


class Peaks(NamedTuple):
    """The three peaks that a batch record carries, in bytes; None is unknown."""

    allocated: int | None
    reserved: int | None
    active: int | None


def peaks_of(reading: Reading) -> tuple[int, int, int]:
    """The peaks of allocated, reserved and active bytes over all pools."""
    return (
        reading["allocated_bytes"]["all"]["peak"],
        reading["reserved_bytes"]["all"]["peak"],
        reading["active_bytes"]["all"]["peak"],
    )


def held_in(reading: Reading) -> tuple[int, int, int]:
    """The allocated, reserved and active bytes over all pools."""
    return (
        reading["allocated_bytes"]["all"]["current"],
        reading["reserved_bytes"]["all"]["current"],
        reading["active_bytes"]["all"]["current"],
    )


@final
class Events:
    """The allocator's event counters, made to only ever grow.

    ``reset_accumulated_memory_stats`` sets them back to zero in the middle of a run; a counter that fell is taken to
    have been reset just after the last look, and goes on from there. Events between that look and the reset are lost.
    """

    NAMES = ("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free")

    __slots__ = ("_before", "_lost")

    def __init__(self) -> None:
        self._before = [0] * len(self.NAMES)
        self._lost = [0] * len(self.NAMES)

    def count(self, reading: Reading) -> list[int | None]:
        """The counters of `NAMES` since the process began; None for those that this version of torch lacks."""
        counts: list[int | None] = []
        for position, name in enumerate(self.NAMES):
            value = reading.get(name)
            if value is None:
                counts.append(None)
                continue
            if value < self._before[position]:
                self._lost[position] += self._before[position]
            self._before[position] = value
            counts.append(value + self._lost[position])
        return counts


def stats_of(reading: Reading, peaks: Peaks, events: Events, *, native: bool, splits: bool) -> MemoryStats:
    """One look, in our words.

    Args:
        reading: The nested statistics.
        peaks: The peaks of the stretch that ends with this look.
        events: Where the device's event counters are kept.
        native: Whether the caching allocator is PyTorch's own; ``cudaMallocAsync`` leaves most statistics at zero.
        splits: Whether inactive splits are counted; with expandable segments they are not.
    """
    retries, ooms, allocs, frees = events.count(reading) if native else (None, None, None, None)
    return MemoryStats(
        allocated_bytes=reading["allocated_bytes"]["all"]["current"],
        allocated_peak_bytes=peaks.allocated,
        reserved_bytes=reading["reserved_bytes"]["all"]["current"],
        reserved_peak_bytes=peaks.reserved,
        active_bytes=reading["active_bytes"]["all"]["current"],
        active_peak_bytes=peaks.active,
        inactive_split_bytes=reading["inactive_split_bytes"]["all"]["current"] if native and splits else None,
        num_alloc_retries=retries,
        num_ooms=ooms,
        num_device_alloc=allocs,
        num_device_free=frees,
    )
