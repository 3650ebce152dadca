"""What a batch of another size would have needed, from the run's own numbers."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from memguard.postmortem.evidence import find_spike
from memguard.postmortem.inputs import LARGE_SEGMENT_BYTES, batch_shape, elements, shape_of
from memguard.postmortem.scene import Request, Scene

MARGIN = 0.85
"""Share of the room that a proposed batch may take: workspaces and fragmentation take theirs too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """What would have fitted, by the run's own slope."""

    batch: int
    """Largest first dimension of the input."""
    elements: int
    bytes_per_batch: int
    """What a batch of the failing size needs in all."""
    fixed_bytes: int
    """What is needed whatever the batch."""


def fit(scene: Scene) -> Fit | None:
    """The largest batch that would have fitted; None where the run tells too little."""
    shape, request = batch_shape(scene), scene.request
    room = _usable_bytes(scene)
    if shape is None or room is None or request.allocated_bytes is None or not shape[0]:
        return None
    fixed, whole, exponent = _needed(scene, shape)
    share = MARGIN * (room - fixed) / max(whole, 1)
    if share <= 0 or whole <= 0:
        return None
    return Fit(
        batch=min(int(share * shape[0]), shape[0] - 1),
        elements=int(min(share, 1.0) ** (1 / exponent) * elements(shape)),
        bytes_per_batch=whole,
        fixed_bytes=fixed,
    )


def _needed(scene: Scene, shape: tuple[int, ...]) -> tuple[int, int, float]:
    """What is needed whatever the batch, what the failing batch needs above it, and the power in which it grows."""
    fixed, whole = _in_flight(scene)
    learned = _learned(scene)
    if learned is None:
        return fixed, whole, 1.0
    floor, per_element = learned
    linear = round(per_element * elements(shape))
    spike = find_spike(scene)
    if spike is None or spike.axis == 0 or whole <= linear:
        return floor, linear, 1.0
    # Longer inputs may need more than in proportion (attention); what had been reached when it failed shows it.
    usual = per_element * spike.usual_elements
    growth = math.log(whole / max(usual, 1)) / math.log(spike.elements / spike.usual_elements)
    return floor, whole, min(max(growth, 1.0), 2.0)


def _in_flight(scene: Scene) -> tuple[int, int]:
    """What is needed whatever the batch, and what the failing batch would have needed, by how far it had come."""
    request, objects = scene.request, scene.objects
    backward = objects.phase == "backward"
    moving = ("activations", "temporaries", "outputs", "other") if backward else ("activations", "temporaries")
    inside = sum(objects.owners.get(owner, 0) for owner in moving)
    share = 1.0 if backward else max(objects.forward_share or 0.0, 0.1)
    asked = request.requested_bytes or 0
    if asked <= LARGE_SEGMENT_BYTES:  # the driver was asked for a whole segment, whatever the program wanted
        asked = min(asked, objects.largest_activation_bytes)
    # A backward holds, besides what was saved, the gradients of one operator's outputs and inputs.
    whole = round((inside + asked) / share) + 2 * objects.largest_activation_bytes
    state = sum(max((each.full_state_bytes or 0) - each.state_bytes, 0) for each in objects.optimizers)
    fixed = (request.allocated_bytes or 0) - inside + max(objects.trainable_bytes - objects.gradient_bytes, 0) + state
    return fixed, whole


def room_bytes(request: Request) -> int | None:
    """All that this process could have: what it had reserved and what the driver had left."""
    if request.reserved_bytes is not None and request.free_bytes is not None:
        return request.reserved_bytes + request.free_bytes
    return request.limit_bytes


def _usable_bytes(scene: Scene) -> int | None:
    """The room without what the allocator needs for whole segments: on small devices no small part of it."""
    room = room_bytes(scene.request)
    gaps = [
        record.reserved_peak_bytes - record.allocated_peak_bytes
        for record in scene.records
        if record.reserved_peak_bytes is not None and record.allocated_peak_bytes is not None
    ]
    if room is None:
        return None
    request = scene.request
    if request.requested_bytes == LARGE_SEGMENT_BYTES:  # a whole one was asked for, so less than one is of no use
        room -= (request.free_bytes or 0) % LARGE_SEGMENT_BYTES
    return room - min(*gaps, 2 * LARGE_SEGMENT_BYTES) if gaps else room


def _learned(scene: Scene) -> tuple[int, float] | None:
    """What does not depend on the batch, and bytes per input element, from the batches that fitted."""
    points = [
        (elements(shape), record)
        for record in scene.records
        if (shape := shape_of(scene, record)) is not None and record.allocated_peak_bytes is not None
    ]
    points = points[2:] if len(points) > 4 else points[-1:]  # the first ones lack the optimizer's state
    if not points:
        return None
    if scene.records[-1].optimizer_steps < 1 and scene.objects.optimizers:
        return None
    line = _line([(size, record.allocated_peak_bytes or 0) for size, record in points])
    if line is not None:
        return line
    size, highest = max(points, key=lambda point: point[1].allocated_peak_bytes or 0)
    floor = highest.allocated_start_bytes or 0
    per_element = ((highest.allocated_peak_bytes or 0) - floor) / max(size, 1)
    return (floor, per_element) if per_element > 0 else None


def _line(points: list[tuple[int, int]]) -> tuple[int, float] | None:
    """Base and slope through the smallest and the largest third; None where the sizes hardly differ."""
    ordered = sorted(points)
    third = max(len(ordered) // 3, 1)
    low, high = ordered[:third], ordered[-third:]
    x1, y1 = statistics.median(x for x, _ in low), statistics.median(y for _, y in low)
    x2, y2 = statistics.median(x for x, _ in high), statistics.median(y for _, y in high)
    if x2 < 1.05 * x1 or y2 <= y1:
        return None
    slope = (y2 - y1) / (x2 - x1)
    base = round(y1 - slope * x1)
    return (base, slope) if base >= 0 else None
