"""Peaks that memguard's own resets wiped, given back to other readers."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import Any, final

from memguard.backends.counters import Look, Peaks, Reading, current_of

_peak: Any = operator.itemgetter("peak")
_pools = dict.values
_chained = itertools.chain.from_iterable
_PEAKS = tuple((name, "all") for name in ("allocated_bytes", "reserved_bytes", "active_bytes"))


@final
class ResetPeaks:
    """What everybody but us has lost, as one list of peaks in the order in which torch tells them.

    Every batch adds to it, so it runs in C: `map` over the dicts of a reading takes a microsecond, and where nothing
    changed since the last batch the comparison of two lists is all that follows. The batch's look comes of the same
    pass.

    Args:
        reading: The first one that is about to be reset.
    """

    __slots__ = ("_flats", "_newest", "_owners", "_peaks", "_places", "_pools", "_stats", "_told", "_where")

    def __init__(self, reading: Reading) -> None:
        kinds = {name: value for name, value in reading.items() if isinstance(value, dict)}
        stats = [name for name, value in kinds.items() if "all" in value]
        flats = [name for name, value in kinds.items() if "peak" in value]
        self._owners = [name for name in kinds if name not in stats and name not in flats]
        """Statistics of what comes and goes: the private pools of CUDA graphs."""
        self._stats, self._flats = _getter(stats), _getter(flats)
        self._places = [*((name, pool) for name in stats for pool in reading[name]), *((name,) for name in flats)]
        where = {place: position for position, place in enumerate(self._places)}
        self._where = [where[place] for place in _PEAKS]
        self._newest = self._peaks = peaks = self._peaks_of(reading)
        self._told = Peaks(*[peaks[position] for position in self._where])
        self._pools = self._peaks_by_pool(reading)

    def take(self, reading: Reading) -> Look:
        """Takes in the peaks of one more reading that is about to be reset; what we need of it ourselves."""
        peaks = list(map(_peak, itertools.chain(_chained(map(_pools, self._stats(reading))), self._flats(reading))))
        if peaks != self._newest:
            self._newest = peaks
            self._peaks = list(map(max, self._peaks, peaks))
            self._told = Peaks(*[peaks[position] for position in self._where])
        if self._pools or any(map(reading.get, self._owners)):
            known, self._pools = self._pools, self._peaks_by_pool(reading)
            for place, peak in self._pools.items():  # a pool that is gone is forgotten with its peaks
                self._pools[place] = max(peak, known.get(place, 0))
        return current_of(reading, self._told)

    def lift(self, reading: Reading) -> bool:
        """Raises every peak of a reading to what it would be without us; tells whether one was lower.

        What the reading has not (another function of torch's may tell less, the pool of a CUDA graph may be gone) stays
        out of it.
        """
        try:
            now = self._peaks_of(reading)
        except KeyError:
            now = []
        if len(now) != len(self._peaks):  # a function that tells less than the one we read
            now = [-1] * len(self._peaks)
        lifted = False
        for place, peak, had in zip(self._places, self._peaks, now, strict=True):
            if had < peak and (stat := _at(reading, place)):
                stat["peak"] = peak
                lifted = True
        for place, peak in self._pools.items():
            if (stat := _at(reading, place)) and stat["peak"] < peak:
                stat["peak"] = peak
                lifted = True
        return lifted

    def _peaks_by_pool(self, reading: Reading) -> dict[tuple[Any, ...], int]:
        return {place: stat["peak"] for name in self._owners for place, stat in _stats_in(reading.get(name), (name,))}

    def _peaks_of(self, reading: Reading) -> list[int]:
        return list(map(_peak, itertools.chain(_chained(map(_pools, self._stats(reading))), self._flats(reading))))


def _getter(names: list[str]) -> Any:
    """Gives the values of some keys, as a tuple."""
    if len(names) > 1:
        return operator.itemgetter(*names)
    return lambda reading: tuple(reading[name] for name in names)


def _stats_in(value: Any, place: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], dict[str, int]]]:
    if not isinstance(value, dict):
        return
    if "peak" in value:
        yield place, value
    else:
        for key, inner in value.items():
            yield from _stats_in(inner, (*place, key))


def _at(reading: Any, place: tuple[Any, ...]) -> dict[str, int] | None:
    for key in place:
        reading = reading.get(key)
        if reading is None:
            return None
    stat: dict[str, int] = reading
    return stat
