"""What a scene's records show: a floor that rose, a batch above all others."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass

from memguard.postmortem.inputs import elements, largest_shape, shape_of
from memguard.postmortem.scene import Scene
from memguard.records.stats import Stage

LARGER, ABOVE_ALL = 1.25, 1.02
"""Times the usual batch, from which on one is large, and times the largest before it, from which on it stands apart."""
MOST_RISE = 0.6
"""Share of the batches that leave more than the one before, from which on a floor climbs."""
STEPS, SMALL_FALLS = 4, 0.1
"""Steps that a staircase has at least, and what it may fall by in between, as a share of its rise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spike:
    """A batch that is larger than all before it."""

    elements: int
    usual_elements: int
    shape: tuple[int, ...]
    usual_shape: tuple[int, ...]
    axis: int
    """The dimension that differs."""


def floors_of(scene: Scene) -> list[int]:
    """What was allocated at the ends of the batches of the failing stage, oldest first."""
    stage = scene.stage if scene.stage is not Stage.OTHER else Stage.TRAIN
    return [
        record.allocated_end_bytes
        for record in scene.records
        if record.stage is stage and record.allocated_end_bytes is not None
    ]


def floor_growth(scene: Scene) -> tuple[int, int, float]:
    """How far the floor rose over the last run of batches of one stage: bytes, batches, bytes per batch."""
    floors = floors_of(scene)
    first = 2 if scene.stage in (Stage.TRAIN, Stage.OTHER) else 1  # the first step makes the optimizer's state
    floors = floors[first:]
    if len(floors) < 4:
        return 0, 0, 0.0
    rises = [after - before for before, after in itertools.pairwise(floors)]
    growth = floors[-1] - floors[0]
    falls = -sum(rise for rise in rises if rise < 0)
    climbs = sum(rise > 0 for rise in rises) >= MOST_RISE * len(rises)
    is_staircase = max(rises) <= growth / STEPS and falls <= SMALL_FALLS * growth  # every task or epoch adds some
    if growth <= 0 or not (climbs or is_staircase):
        return 0, len(floors), 0.0
    return growth, len(floors) - 1, growth / (len(floors) - 1)


def find_spike(scene: Scene) -> Spike | None:
    """Whether the failing batch is well above all that went before it in the same stage."""
    shape = largest_shape(scene.shapes)
    if shape is None:
        return None
    before = [
        each for record in scene.records if (each := shape_of(scene, record)) is not None and len(each) == len(shape)
    ]
    if len(before) < 2:
        return None
    sizes = [elements(each) for each in before]
    usual = int(statistics.median(sizes))
    size = elements(shape)
    if size < LARGER * usual or size <= max(sizes) or not (size > ABOVE_ALL * max(sizes) or inputs_grew(scene)):
        return None
    usual_shape = min(before, key=lambda each: abs(elements(each) - usual))
    ratios = [now / max(then, 1) for now, then in zip(shape, usual_shape, strict=True)]
    return Spike(
        elements=size, usual_elements=usual, shape=shape, usual_shape=usual_shape, axis=ratios.index(max(ratios))
    )


def inputs_grew(scene: Scene) -> bool:
    """Whether the batches themselves became larger: what stays after each, its outputs for one, grows with them."""
    sizes = [elements(shape) for record in scene.records if (shape := shape_of(scene, record)) is not None]
    third = len(sizes) // 3
    return third > 0 and statistics.median(sizes[-third:]) > 1.2 * statistics.median(sizes[:third])


def largest_batch_bytes(scene: Scene) -> int:
    """The most that a batch took above what it began with; 0 where nothing is known."""
    taken = [
        record.allocated_peak_bytes - record.allocated_start_bytes
        for record in scene.records
        if record.allocated_peak_bytes is not None and record.allocated_start_bytes is not None
    ]
    return max(taken, default=0)
