"""Whether memory ran out only because free memory is fragmented."""

from __future__ import annotations

from memguard.postmortem.estimate import fit, room_bytes
from memguard.postmortem.evidence import find_spike
from memguard.postmortem.scene import Scene
from memguard.postmortem.trial import fits_as_it_is
from memguard.postmortem.verdict import SUBSTANTIAL, Cause, Verdict
from memguard.text.units import format_bytes

FULL = 0.95
"""Share of the device from which on the state of an optimizer fills it: what is left lies in pieces."""


def find_fragmentation(scene: Scene) -> Verdict | None:
    """Pieces that would have been enough in one place, for a batch that fits as such."""
    request = scene.request
    if request.requested_bytes is None or request.free_bytes is None or request.pieces_bytes is None:
        return None
    if request.free_bytes + request.pieces_bytes < request.requested_bytes:
        return None
    if request.pieces_bytes < max(SUBSTANTIAL * (request.reserved_bytes or 0), request.requested_bytes / 4):
        return None
    if not _fitted_before(scene) or _fills_with_state(scene):
        return None
    largest = request.largest_piece_bytes
    biggest = f"; the largest piece is {format_bytes(largest)}" if largest is not None else ""
    alone = request.pieces_bytes >= request.requested_bytes
    besides = "" if alone else f", with the {format_bytes(request.free_bytes)} that the device has left,"
    if largest is not None and largest >= request.requested_bytes:
        biggest += ", of a segment for requests of another size or stream"
    return Verdict(
        cause=Cause.FRAGMENTATION,
        text=f"Fragmentation: {format_bytes(request.pieces_bytes)} are free inside PyTorch's allocator, but in pieces "
        f"between tensors in use{biggest}. In one place{besides} they would have been enough for "
        f"{format_bytes(request.requested_bytes)}.",
        bytes=request.pieces_bytes,
    )


def _fitted_before(scene: Scene) -> bool:
    """Whether the batch as such fits: by a replay, by the run's own slope, or since as much was allocated before."""
    estimate, room = fit(scene), room_bytes(scene.request)
    exceeds = estimate is not None and room is not None and estimate.fixed_bytes + estimate.bytes_per_batch > room
    if exceeds and scene.objects.phase == "forward" and find_spike(scene) is not None:
        return False  # a replay ends where memory ran out, and the batch, larger than all before, had more to ask for
    phase = scene.objects.phase
    fits_otherwise = any(replayed.fits for replayed in scene.replays)
    if (phase == "forward" or (phase == "backward" and not fits_otherwise)) and fits_as_it_is(scene) is False:
        return False  # not even laid out anew
    if fits_otherwise:
        return True
    if phase is not None and scene.steps is not None and not any(r.stage is scene.stage for r in scene.records):
        return False  # no batch shows that one fits
    needed = (scene.request.allocated_bytes or 0) + (scene.request.requested_bytes or 0)
    if any((record.allocated_peak_bytes or 0) >= 0.95 * needed for record in scene.records):
        return True
    return not exceeds


def _fills_with_state(scene: Scene) -> bool:
    """Whether an optimizer is in its first step, and the state it makes will leave next to nothing free."""
    request = scene.request
    for optimizer in scene.objects.optimizers:
        if optimizer.steps == 0 and optimizer.stepping and optimizer.full_state_bytes:
            missing = optimizer.full_state_bytes - optimizer.state_bytes
            if (request.allocated_bytes or 0) + missing > FULL * (request.limit_bytes or 0):
                return True
    return False
