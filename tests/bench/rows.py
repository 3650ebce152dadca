"""A row of the table of `python -m tests.bench`, and how costs are compared: in turns, by medians of differences."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Mapping
from typing import NamedTuple


class Row(NamedTuple):
    """One figure."""

    label: str
    value: float
    unit: str
    at_most: float | None = None
    """What we aim at; None where the figure only informs."""

    @property
    def text(self) -> str:
        """The figure, rounded."""
        value = self.value + 0.0  # no negative zero
        return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"

    @property
    def shown(self) -> str:
        """The figure with its unit."""
        unit = {"x": "", "us": "us"}.get(self.unit, self.unit)
        return f"{self.text}{'' if unit == '%' else ' '}{unit}".strip() if self.unit != "x" else f"{self.text} times"


BARE = "bare"
"""The variant without anything that is measured."""


def microseconds_over_bare(variants: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, float]:
    """What each variant costs a batch beside the bare one, in microseconds.

    All variants run in turns, so that what else the machine does meets all of them; the cost is the median over the
    turns of the difference to the same turn's bare run. Under `BARE` stands the bare batch itself.

    Args:
        variants: A run of each, which returns its seconds per batch; one is named `BARE`.
        repeats: Turns.
    """
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    names = list(variants)
    for turn in range(repeats):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            gc.collect()
            seconds[name].append(variants[name]())
    bare = seconds[BARE]
    return {
        name: 1e6 * statistics.median(bare if name == BARE else map(float.__sub__, costs, bare))
        for name, costs in seconds.items()
    }
