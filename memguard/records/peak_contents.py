"""What filled the peak of one batch: rows of bytes by category, module or group, line and tensor. No torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MOST_ROWS = 150
"""Of one batch; smaller ones are summed up by category and group."""
MOST_MOMENTS = 240


class Row(NamedTuple):
    """Bytes alive at the peak."""

    category: str
    """parameters, gradients, optimizer, buffers, inputs, kept, activations or temporaries."""
    group: str
    """The module; for gradients and optimizer states the parameter group; for what is kept its holder."""
    file: str | None
    line: int | None
    function: str | None
    what: str
    """The tensor's name, or the node that saved it."""
    shape: tuple[int, ...] | None
    dtype: str
    nbytes: int
    tensors: int = 1


@dataclass(slots=True, kw_only=True)
class PeakContents:
    """All of them, and what was allocated over the batch."""

    batch: int
    stage: str
    allocated_peak_bytes: int
    when: str
    """What ran at the peak: ``forward``, ``loss``, ``backward`` or ``step``."""
    module: str
    """The module that ran then; empty where that is unknown."""
    rows: list[Row]
    moments: list[tuple[str, str, int]] = field(default_factory=list)
    """In order: what ran until then, its module, and what was allocated after it."""

    def to_json(self) -> dict[str, Any]:
        """As JSON data, for a recording's ``contents`` line."""
        places: dict[tuple[str | None, int | None, str | None], int] = {}
        rows = []
        for row in thinned(self.rows):
            place = places.setdefault((row.file, row.line, row.function), len(places))
            shape = list(row.shape) if row.shape is not None else None
            rows.append([row.category, row.group, place, row.what, shape, row.dtype, row.nbytes, row.tensors])
        step = -(-len(self.moments) // MOST_MOMENTS) or 1
        moments = self.moments
        highest = [max(moments[at : at + step], key=_height) for at in range(0, len(moments), step)]
        return {
            "batch": self.batch,
            "stage": self.stage,
            "allocated_peak_bytes": self.allocated_peak_bytes,
            "when": self.when,
            "module": self.module,
            "rows": rows,
            "places": [list(place) for place in places],
            "moments": [list(moment) for moment in highest],
        }


def _height(moment: tuple[str, str, int]) -> int:
    return moment[2]


def thinned(rows: Iterable[Row]) -> list[Row]:
    """Equal tensors in one row each, the largest first; the smallest summed up by category and group."""
    merged: dict[Row, list[int]] = {}
    for row in rows:
        sums = merged.setdefault(row._replace(nbytes=0, tensors=0), [0, 0])
        sums[0] += row.nbytes
        sums[1] += row.tensors
    known = [row._replace(nbytes=sums[0], tensors=sums[1]) for row, sums in merged.items() if sums[0]]
    known.sort(key=lambda row: -row.nbytes)
    return known[:MOST_ROWS] + _summed(_summed(known[MOST_ROWS:], by_group=True), by_group=False, above=MOST_ROWS)


def _summed(rows: Sequence[Row], *, by_group: bool, above: int = 0) -> list[Row]:
    """Rows summed up by category, and group; the first so many stay as they are."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in rows[above:]:
        told = sums[row.category, row.group if by_group else "other modules"]
        told[0] += row.nbytes
        told[1] += row.tensors
    summed = [
        Row(category, group, None, None, None, "smaller tensors", None, "", nbytes, count)
        for (category, group), (nbytes, count) in sums.items()
    ]
    return [*rows[:above], *sorted(summed, key=lambda row: -row.nbytes)]
