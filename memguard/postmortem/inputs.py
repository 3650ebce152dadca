"""The shapes of a scene's batches, as far as they are known."""

from __future__ import annotations

from typing import Any

from memguard.allocator.blocks import SMALL_SEGMENT_BYTES
from memguard.postmortem.scene import Scene
from memguard.records.stats import BatchRecord

LARGE_SEGMENT_BYTES = 20 * 1024**2
"""What the allocator takes from the driver for requests of 1 to 10 MiB."""


LARGE = 0.2
"""Share of the device from which one tensor is called large."""


def is_segment(requested_bytes: int) -> bool:
    """Whether the driver was asked for a whole segment, whatever the program wanted."""
    return requested_bytes in (SMALL_SEGMENT_BYTES, LARGE_SEGMENT_BYTES)


def shape_of(scene: Scene, record: BatchRecord) -> tuple[int, ...] | None:
    """The largest input of a record's batch; None where it is not known, or of another stage."""
    if record.stage is not scene.stage or record.shapes is None:
        return None
    return largest_shape(scene.shapes_of.get(record.shapes))


def elements(shape: tuple[int, ...]) -> int:
    """Number of elements."""
    product = 1
    for length in shape:
        product *= length
    return product


def batch_shape(scene: Scene) -> tuple[int, ...] | None:
    """The largest input of the failing batch."""
    return largest_shape(scene.shapes) or max(scene.objects.inputs, key=elements, default=None)


def largest_shape(shapes: list[Any] | None) -> tuple[int, ...] | None:
    """The largest of the described inputs; None where none is known."""
    found = [tuple(entry[1]) for entry in shapes or () if len(entry) > 1 and entry[1]]
    return max(found, key=elements, default=None)


def is_buffer(scene: Scene) -> bool:
    """Whether what failed is a tensor of a fixed size that is a large part of the device, made outside of any step.

    A tensor that would fit but for the segment that PyTorch takes for it is none.
    """
    wanted = scene.steps.wanted if scene.steps is not None else None
    if wanted is None or scene.objects.phase is not None or scene.records:
        return False
    limit = scene.request.limit_bytes or 0
    fits_unrounded = wanted.nbytes <= limit - (scene.request.allocated_bytes or 0)
    return not fits_unrounded and wanted.nbytes >= LARGE * limit > 0


def share_first(scene: Scene) -> bool:
    """Whether the first dimension of the failing batch can be the batch: all its inputs have the same one."""
    shapes = [tuple(entry[1]) for entry in scene.shapes or () if len(entry) > 1 and entry[1]]
    shapes = shapes or [shape for shape in scene.objects.inputs if shape]
    return len({shape[0] for shape in shapes}) == 1
