"""PyTorch's nested allocator statistics, read once and put into our own words."""

from __future__ import annotations

import operator
from typing import Any, NamedTuple, final

from memguard.records.stats import MemoryStats

Reading = dict[str, Any]
"""What ``torch._C._cuda_memoryStats`` returns: statistic -> pool -> {"current", "peak", "allocated", "freed"}."""


class Peaks(NamedTuple):
    """The three peaks that a batch record carries, in bytes; None is unknown."""

    allocated: int | None
    reserved: int | None
    active: int | None


class Look(NamedTuple):
    """What we need of one reading. The rest is thrown away at once: a reading is a hundred numbers in forty dicts."""

    allocated: int
    reserved: int
    active: int
    inactive_split: int
    peaks: Peaks
    events: tuple[int | None, ...]
    """The counters of `Events.NAMES`; None for those that this version of torch lacks."""


_bytes = operator.itemgetter("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes")
_EVENTS = ("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free")


def look_of(reading: Reading) -> Look:
    """What we need of a reading; its peaks are those since the last reset of anybody's."""
    allocated, reserved, active, _ = _bytes(reading)
    return current_of(reading, Peaks(allocated["all"]["peak"], reserved["all"]["peak"], active["all"]["peak"]))


def current_of(reading: Reading, peaks: Peaks) -> Look:
    """The same of a reading whose peaks are known."""
    allocated, reserved, active, split = _bytes(reading)
    current = "current"
    numbers = allocated["all"][current], reserved["all"][current], active["all"][current], split["all"][current]
    return _make(Look, (*numbers, peaks, tuple(map(reading.get, _EVENTS))))


_make = tuple.__new__  # the constructor of a NamedTuple is one more call, in each batch


@final
class Events:
    """The allocator's event counters, made to only ever grow.

    ``reset_accumulated_memory_stats`` sets them back to zero in the middle of a run; a counter that fell is taken to
    have been reset just after the last look, and goes on from there. Events between that look and the reset are lost.
    """

    NAMES = _EVENTS

    __slots__ = ("_before", "_counts", "_lost")

    def __init__(self) -> None:
        self._before: tuple[int | None, ...] = (0,) * len(self.NAMES)
        self._counts: tuple[int | None, ...] = self._before
        self._lost = [0] * len(self.NAMES)

    def count(self, events: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """The counters of `NAMES` since the process began, given what torch tells; None where it tells nothing."""
        if events == self._before:  # in nearly every batch
            return self._counts
        for position, (now, before) in enumerate(zip(events, self._before, strict=True)):
            if now is not None and before is not None and now < before:
                self._lost[position] += before
        self._before = events
        self._counts = tuple(None if now is None else now + lost for now, lost in zip(events, self._lost, strict=True))
        return self._counts


def stats_of(look: Look, events: Events, *, native: bool, splits: bool) -> MemoryStats:
    """One look, in our words.

    Args:
        look: The look, its peaks those of the stretch that ends with it.
        events: Where the device's event counters are kept.
        native: Whether the caching allocator is PyTorch's own; ``cudaMallocAsync`` leaves most statistics at zero.
        splits: Whether inactive splits are counted; with expandable segments they are not.
    """
    allocated_peak, reserved_peak, active_peak = look.peaks
    retries, ooms, allocs, frees = events.count(look.events) if native else _NOT_COUNTED
    return MemoryStats(
        allocated_bytes=look.allocated,
        allocated_peak_bytes=allocated_peak,
        reserved_bytes=look.reserved,
        reserved_peak_bytes=reserved_peak,
        active_bytes=look.active,
        active_peak_bytes=active_peak,
        inactive_split_bytes=look.inactive_split if native and splits else None,
        num_alloc_retries=retries,
        num_ooms=ooms,
        num_device_alloc=allocs,
        num_device_free=frees,
    )


_NOT_COUNTED = (None,) * len(Events.NAMES)
