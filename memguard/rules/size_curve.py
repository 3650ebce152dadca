"""How a batch's peak follows the size of its input: along a line, or bent as attention bends it."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import final

REACH = 4
"""How far beyond the largest size a bent curve is followed: further out, small errors decide."""
LINE_RESIDUAL, BENT_RESIDUAL = 0.1, 0.05
"""Medians of what is left between points and curve, as shares of the height that they span."""

Points = list[tuple[int, int]]


@final
@dataclass(frozen=True, slots=True)
class SizeCurve:
    """``base + slope * size + bend * size ** 2``."""

    base: float
    slope: float
    bend: float = 0.0

    def at(self, size: float) -> float:
        """Bytes that an input of a size needs."""
        return self.base + self.slope * size + self.bend * size * size

    def reach(self, nbytes: float) -> float:
        """The size of the input that needs so many bytes."""
        if not self.bend:
            return (nbytes - self.base) / self.slope
        root = math.sqrt(max(self.slope**2 + 4 * self.bend * (nbytes - self.base), 0.0))
        return (root - self.slope) / (2 * self.bend)


def fit(points: Points) -> SizeCurve | None:
    """The curve through points by the medians of their thirds; None if they lie on none, or on one that falls.

    A bent one is taken only where it leaves half of what the line leaves between itself and the points.
    """
    if len(points) < 3:
        return None
    (x1, y1), (x2, y2), (x3, y3) = _medians(points)
    if x3 <= x1 or y3 <= y1:
        return None
    slope = (y3 - y1) / (x3 - x1)
    line = SizeCurve(y1 - slope * x1, slope)
    of_line = _residual(line, points) / (y3 - y1)
    if x1 < x2 < x3:
        bend = ((y3 - y2) / (x3 - x2) - (y2 - y1) / (x2 - x1)) / (x3 - x1)
        rise = (y2 - y1) / (x2 - x1) - bend * (x1 + x2)
        bent = SizeCurve(y1 - rise * x1 - bend * x1 * x1, rise, bend)
        of_bent = _residual(bent, points) / (y3 - y1)
        if bend > 0 and of_bent <= BENT_RESIDUAL and 2 * of_bent < of_line:
            return bent
    return line if of_line <= LINE_RESIDUAL else None


def _medians(points: Points) -> list[tuple[float, float]]:
    """Medians of the smaller, the middle and the larger points; of sizes and of bytes."""
    ordered = sorted(points)
    third = max(len(ordered) // 3, 1)
    parts = (ordered[:third], ordered[third:-third], ordered[-third:])
    return [(statistics.median(x for x, _ in part), statistics.median(y for _, y in part)) for part in parts]


def _residual(curve: SizeCurve, points: Points) -> float:
    return statistics.median(abs(y - curve.at(x)) for x, y in points)
