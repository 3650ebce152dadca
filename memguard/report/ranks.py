"""The ranks of a run beside each other: their lowest, median and highest peak by optimizer step. No torch.

Optimizer steps are the clock that ranks share: the numbers of their records drift apart where one rank validates alone
or has a spike between two stages. Without an optimizer the numbers of the records are taken.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, final

from memguard.recording import Recording

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"

MOST = 4096
"""Stretches that are kept of a recording."""
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
        import numpy as np

        times = width // self.width
        if times <= 1:
            return self
        missing = -len(self.peaks) % times
        padded = np.pad(self.peaks, (0, missing), constant_values=-1).reshape(-1, times)
        top = padded.argmax(axis=1) + np.arange(len(padded)) * times
        top = np.minimum(top, len(self.peaks) - 1)
        rows = {name: values[top] for name, values in self.rows.items()}
        return Heights(width, padded.max(axis=1), rows)


def heights_of(recording: Recording) -> Heights:
    """A recording's heights, in at most 4096 stretches."""
    import numpy as np

    peaks = _known(recording, "allocated_peak_bytes")
    peaks = np.where(peaks >= 0, peaks, _known(recording, "allocated_end_bytes"))
    if not (peaks >= 0).any():
        peaks = _known(recording, "host_rss_bytes")
    columns = {name: _known(recording, name) for name in _KEPT}
    clock = _known(recording, "optimizer_steps")
    if not (clock > 0).any():
        clock = columns["batch"]
    clock = np.maximum(clock, 0)
    width = 1
    while len(clock) and int(clock.max()) // width >= MOST:
        width *= 2
    count = int(clock.max()) // width + 1 if len(clock) else 0
    stretch = clock // width
    order = np.lexsort((peaks, stretch))
    top = order[np.append(np.diff(stretch[order]) > 0, True)] if len(order) else order
    highest = np.full(count, -1, dtype=np.int64)
    rows = {name: np.full(count, -1, dtype=np.int64) for name in _KEPT}
    highest[stretch[top]] = peaks[top]
    for name, values in columns.items():
        rows[name][stretch[top]] = values[top]
    return Heights(width, highest, rows)


def _known(recording: Recording, name: str) -> Array:
    """A column as whole numbers, -1 for unknown."""
    import numpy as np

    if name not in (recording.rows.dtype.names or ()):
        return np.full(len(recording), -1, dtype=np.int64)
    values: Array = np.asarray(recording.rows[name]).astype(np.int64)
    return np.where(values < 0, np.int64(-1), values)


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

    def over(self, first: int, last: int) -> tuple[int, int, int, int, int] | None:
        """Of the ranks' peaks in some stretches: lowest, its rank, median, highest, its rank; None without a record."""
        import numpy as np

        peaks = self.table[:, first:last].max(axis=1)
        known = np.flatnonzero(peaks >= 0)
        if not len(known):
            return None
        low, high = known[peaks[known].argmin()], known[peaks[known].argmax()]
        median = int(np.median(peaks[known]))
        return int(peaks[low]), self.ranks[low], median, int(peaks[high]), self.ranks[high]

    def stretches(self, most: int) -> list[dict[str, int]]:
        """The run in at most so many stretches of equal length, as JSON values."""
        import numpy as np

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


def spread(heights: dict[int, Heights]) -> Spread:
    """The ranks beside each other.

    Args:
        heights: By rank; at least one.
    """
    import numpy as np

    ranks = sorted(heights)
    width = max(each.width for each in heights.values())
    common: Sequence[Heights] = [heights[rank].coarser(width) for rank in ranks]
    count = max(len(each.peaks) for each in common)
    table = np.full((len(ranks), max(count, 1)), -1, dtype=np.int64)
    for row, each in zip(table, common, strict=True):
        row[: len(each.peaks)] = each.peaks
    return Spread(ranks, list(common), table)
