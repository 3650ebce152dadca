"""The ranks of a run beside each other: their lowest, median and highest peak by optimizer step. No torch.

Optimizer steps are the clock that ranks share: the numbers of their records drift apart where one rank validates alone
or has a spike between two stages. Without an optimizer the numbers of the records are taken.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np

from memguard.report.html_rows import Rows

Array: TypeAlias = "np.ndarray[Any, Any]"

MOST = 4096
"""Stretches that are kept of a recording."""
_COMPARED = 256
"""Steps in which ranks are compared."""
_MOST_RANKS = 0.5
"""Steps in which fewer of the ranks have a record do not count."""
_FEWEST = 0.5
"""A rank that has fewer of the compared steps, killed early, is not comparable: its steps are others."""
_OFTEN = 0.8
"""The quantile of a rank's steps that ranks are compared by."""
_KEPT = ("batch", "stage", "shapes", "allocated_start_bytes")


@final
@dataclass(frozen=True, slots=True, eq=False)
class Heights:
    """One rank's highest record in each stretch of steps; -1 is unknown, and so is a stretch without a record."""

    width: int
    """Steps in a stretch; stretch k begins at step ``k * width``."""
    peaks: Array
    """Bytes allocated at most; resident memory where the device tells nothing."""
    rows: dict[str, Array]
    """Of the highest record: ``batch``, ``stage``, ``shapes`` and ``allocated_start_bytes``."""

    def coarser(self, width: int) -> Heights:
        """The same in stretches of a multiple of the width."""
        times = min(width // self.width, max(len(self.peaks), 1))
        if times <= 1:
            return self
        missing = -len(self.peaks) % times
        padded = np.pad(self.peaks, (0, missing), constant_values=-1).reshape(-1, times)
        top = padded.argmax(axis=1) + np.arange(len(padded)) * times
        top = np.minimum(top, len(self.peaks) - 1)
        rows = {name: values[top] for name, values in self.rows.items()}
        return Heights(width, padded.max(axis=1), rows)


def heights_of(rows: Rows, *, begin: int = 0, clock: str | None = None, most: int = MOST) -> Heights:
    """A recording's heights.

    Args:
        rows: Normalised rows: all of a recording, or of a window every maximum.
        begin: What the clock shows where the first stretch begins.
        clock: The column that is the clock; None takes what `clock_of` says of these rows.
        most: In how many stretches at most.
    """
    peaks = _known(rows, "allocated_peak_bytes")
    peaks = np.where(peaks >= 0, peaks, _known(rows, "allocated_end_bytes"))
    if not (peaks >= 0).any():
        peaks = _known(rows, "host_rss_bytes")
    stretch = np.maximum(_known(rows, clock or clock_of([rows])) - begin, 0)
    width = 1
    while len(stretch) and int(stretch.max()) // width >= most:
        width *= 2
    stretch //= width
    count = int(stretch.max()) + 1 if len(stretch) else 0
    order = np.lexsort((peaks, stretch))
    top = order[np.append(np.diff(stretch[order]) > 0, True)] if len(order) else order
    highest = np.full(count, -1, dtype=np.int64)
    highest[stretch[top]] = peaks[top]
    kept = {}
    for name in _KEPT:
        kept[name] = np.full(count, -1, dtype=np.int64)
        kept[name][stretch[top]] = _known(rows, name)[top]
    return Heights(width, highest, kept)


def clock_of(ranks: Iterable[Rows]) -> str:
    """The column that all ranks share as their clock: optimizer steps, or the numbers of the records without any."""
    return "optimizer_steps" if any((rows["optimizer_steps"] > 0).any() for rows in ranks) else "batch"


def _known(rows: Rows, name: str) -> Array:
    """A column as whole numbers, -1 for unknown."""
    values: Array = rows[name].astype(np.int64)
    values[values < 0] = -1
    return values


def _quantiles(above: Array) -> Array:
    """The same quantile of each row's known values; NaN of a row that has few."""
    rows = [row[~np.isnan(row)] for row in above]
    fewest = max(_FEWEST * above.shape[1], 1)
    return np.asarray([np.quantile(row, _OFTEN) if len(row) >= fewest else np.nan for row in rows])


@final
@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """All ranks' heights in common stretches, rank by stretch."""

    ranks: list[int]
    heights: list[Heights]
    table: Array
    """Peaks, a row for each rank; -1 where a rank has no record."""

    def position(self, rank: int) -> int:
        """The stretch of a rank's highest peak."""
        return int(self.table[self.ranks.index(rank)].argmax())

    def usual(self) -> Array | None:
        """Each rank's usual high peak in bytes: the median one, moved by how far the rank is above the others.

        Taken is what a fifth of a rank's steps exceed: a rank whose batches are longer now and then counts, and what
        differs from step to step for all ranks alike (longer batches), and single spikes, do not. NaN for a rank that
        has few records in the steps that most ranks have; None where no rank has one.
        """
        shown = self.table[:, :: max(1, self.table.shape[1] // _COMPARED)]
        there = (shown >= 0).any(axis=1)
        shown = shown[there]
        shown = shown[:, (shown >= 0).mean(axis=0) > _MOST_RANKS] if len(shown) else shown
        if not shown.size:
            return None
        known = np.where(shown >= 0, shown, np.nan)
        complete = not np.isnan(known).any()
        common = np.median(known, axis=0) if complete else np.nanmedian(known, axis=0)
        above = known - common
        high = np.quantile(above, _OFTEN, axis=1) if complete else _quantiles(above)
        usual: Array = np.full(len(self.table), np.nan)
        usual[there] = high + np.median(common)
        return usual

    def curves(self) -> dict[str, list[int]]:
        """The spread as the Memory tab draws it, all lists of one length.

        ``batch`` only grows: the number of the earliest record in each stretch; ``at`` is that of the highest one.
        ``low``, ``median`` and ``high`` are bytes, ``worst`` is the rank of the highest.
        """
        batches = np.full(self.table.shape, -1, dtype=np.int64)
        for number, each in enumerate(self.heights):
            batches[number, : len(each.peaks)] = each.rows["batch"]
        shown = np.flatnonzero((self.table >= 0).any(axis=0))
        table, batches = self.table[:, shown], batches[:, shown]
        if not len(shown):
            return {"batch": [], "at": [], "low": [], "median": [], "high": [], "worst": []}
        unknown, position = table < 0, np.arange(len(shown))
        high = table.argmax(axis=0)
        most = np.iinfo(np.int64).max
        earliest = np.where(unknown, most, batches).min(axis=0)
        medians = np.nanmedian(np.where(unknown, np.nan, table), axis=0)
        return {
            "batch": (np.maximum.accumulate(earliest - position) + position).tolist(),
            "at": batches[high, position].tolist(),
            "low": np.where(unknown, most, table).min(axis=0).tolist(),
            "median": np.minimum(medians, 2.0**62).astype(np.int64).tolist(),
            "high": table.max(axis=0).tolist(),
            "worst": [self.ranks[each] for each in high.tolist()],
        }

    def over(self, first: int, last: int) -> tuple[int, int, int, int, int] | None:
        """Of the ranks' peaks in some stretches: lowest, its rank, median, highest, its rank; None without a record."""
        peaks = self.table[:, first:last].max(axis=1)
        known = np.flatnonzero(peaks >= 0)
        if not len(known):
            return None
        low, high = known[peaks[known].argmin()], known[peaks[known].argmax()]
        median = int(np.median(peaks[known]))
        return int(peaks[low]), self.ranks[low], median, int(peaks[high]), self.ranks[high]

    def stretches(self, most: int) -> list[dict[str, int]]:
        """The run in at most so many stretches of equal length, as JSON values."""
        count = self.table.shape[1]
        edges = np.linspace(0, count, min(most, count) + 1).astype(int).tolist()
        listed = []
        for first, last in itertools.pairwise(edges):
            told = self.over(first, last)
            if told is None:
                continue
            low, lowest, median, high, highest = told
            batches = self.heights[self.ranks.index(highest)].rows["batch"][first:last]
            batches = batches[batches >= 0]
            if not len(batches):
                continue
            listed.append(
                {
                    "first_batch": int(batches.min()),
                    "last_batch": int(batches.max()),
                    "min_bytes": low,
                    "min_rank": lowest,
                    "median_bytes": median,
                    "max_bytes": high,
                    "max_rank": highest,
                }
            )
        return listed


def spread(heights: Mapping[int, Heights], most: int | None = None) -> Spread:
    """The ranks beside each other.

    Args:
        heights: By rank; at least one.
        most: In how many stretches at most; None takes the finest that all have.
    """
    ranks = sorted(heights)
    width = max(each.width for each in heights.values())
    if most is not None:
        count = max(len(each.peaks) * each.width for each in heights.values())
        width *= max(1, -(-count // (most * width)))
    common: Sequence[Heights] = [heights[rank].coarser(width) for rank in ranks]
    count = max(len(each.peaks) for each in common)
    table = np.full((len(ranks), max(count, 1)), -1, dtype=np.int64)
    for row, each in zip(table, common, strict=True):
        row[: len(each.peaks)] = each.peaks
    return Spread(ranks, list(common), table)
