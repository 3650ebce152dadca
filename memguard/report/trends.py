"""How one rank's memory develops over a recording, in a few figures that ranks can be compared by. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np

from memguard.records.stats import STAGES, Stage
from memguard.report.html_rows import Rows

Array: TypeAlias = "np.ndarray[Any, Any]"

_PARTS = 8
"""Stretches of equal length whose medians are compared; the first one is left out: it warms up."""
_LEAST_BATCHES = 2 * _PARTS
_SHORT, _APART = 64, 4
"""The most short stretches whose differences show what is chance, and how many are between two that are compared."""
_NOTABLE, _FALLS = 0.05, 0.1
"""Parts of the whole rise: what a stretch must rise to count, and what all falls together may come to."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How a size rises over the training batches of a recording."""

    bytes: int | None = 0
    """From the second stretch to the last one; 0 where it falls again, rises but once, or no longer does at the end;
    None where there are too few batches to tell, or none with a size."""
    per_step: float = 0.0
    """The same for each optimizer step since it began, or for each batch without an optimizer."""
    rise: float = float("nan")
    """From the second stretch to the last one, whatever lies between; negative where it fell."""
    wander: float = float("nan")
    """Standard deviation that the rise has by chance: of a random walk with noise, as short stretches differ."""


_UNKNOWN = Growth(bytes=None)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """What a rank's training batches come to. None is unknown."""

    device: Growth = _UNKNOWN
    """Of what stays allocated after a batch."""
    host: Growth = _UNKNOWN
    """Of the process's resident memory."""
    held_bytes: int | None = None
    """What is allocated before a batch, in the last stretch."""
    outside_bytes: int | None = None
    """In use on the device and not reserved by PyTorch: the least in the last half, for readings of the driver are some
    batches old."""
    host_bytes: int | None = None


def trend_of(rows: Rows) -> Trend:
    """The trend of one recording."""
    rows = rows[rows["stage"] == STAGES.index(Stage.TRAIN)]
    if not len(rows):
        return Trend()
    clock = rows["optimizer_steps"].astype(np.float64)
    if not clock.min() >= 0 or not clock.max() > 0:
        clock = rows["batch"].astype(np.float64)
    floor, rss = _sizes(rows, "allocated_end_bytes"), _sizes(rows, "host_rss_bytes")
    late = slice(len(rows) - max(len(rows) // _PARTS, 1), None)
    outside = _sizes(rows, "device_used_bytes") - _sizes(rows, "reserved_bytes")
    return Trend(
        device=_growth(floor, clock),
        host=_growth(rss, clock),
        held_bytes=_median(_sizes(rows, "allocated_start_bytes")[late]),
        outside_bytes=_least(outside[len(rows) // 2 :]),
        host_bytes=_median(rss[late]),
    )


def _growth(values: Array, clock: Array) -> Growth:
    """How far the medians of equal stretches rise, where they go on rising to the end."""
    count = len(values) // _PARTS
    if len(values) < _LEAST_BATCHES:
        return _UNKNOWN
    used = values[len(values) - count * _PARTS :].reshape(_PARTS, count)
    if np.isnan(used).all(axis=1).any():
        return _UNKNOWN
    median = np.nanmedian if np.isnan(used).any() else np.median  # the former takes ten times as long
    medians = median(used, axis=1)[1:]
    times = np.median(clock[len(values) - count * _PARTS :].reshape(_PARTS, count), axis=1)[1:]
    rises, rise = np.diff(medians), float(medians[-1] - medians[0])
    wander = _wander(used[1:].reshape(-1), _PARTS - 1)
    grows = rises > _NOTABLE * rise
    if rise <= 0 or not grows[-1] or grows.sum() < 2 or -rises[rises < 0].sum() > _FALLS * rise:
        return Growth(rise=rise, wander=wander)
    first = int(grows.argmax())
    steps = float(times[-1] - times[first])
    if steps <= 0:
        return Growth(rise=rise, wander=wander)
    per_step = float(medians[-1] - medians[first]) / steps
    return Growth(bytes=int(rise), per_step=per_step, rise=rise, wander=wander)


def _wander(values: Array, parts: int) -> float:
    """How far the median of so many parts' last one is from the first one's by chance; NaN where few values tell.

    Short stretches differ by noise and by a walk. What four of them differ more than two neighbours is the walk's.
    """
    width = -(-len(values) // _SHORT)
    cut = values[len(values) % width :].reshape(-1, width)
    short = np.median(cut[~np.isnan(cut).any(axis=1)], axis=1)
    if len(short) <= 2 * _APART:
        return float("nan")
    near, far = float(np.diff(short).var()), float((short[_APART:] - short[:-_APART]).var())
    walk = max(far - near, 0.0) / (_APART - 1)
    noise = max(near - walk, 0.0)  # of two stretches
    return float((walk * len(short) + noise * parts / len(short)) ** 0.5)


def _sizes(rows: Rows, name: str) -> Array:
    """A column of bytes with NaN for unknown."""
    return _known(rows[name].astype(np.float64))


def _known(values: Array) -> Array:
    values[values < 0] = np.nan
    return values


def _least(values: Array) -> int | None:
    known = values[~np.isnan(values)]
    return max(int(known.min()), 0) if len(known) else None


def _median(values: Array) -> int | None:
    known = values[~np.isnan(values)]
    return int(np.median(known)) if len(known) else None
