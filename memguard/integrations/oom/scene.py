"""The scene of an out-of-memory error: device, live objects and records, as plain data.

Private name of torch (checked with 2.13 and 2.15): ``DisableTorchFunctionSubclass``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import torch
from torch import nn

from memguard.allocator.analysis.lines import Lines, top_lines
from memguard.allocator.snapshot_reader import snapshot_of
from memguard.backends.host import HostBackend
from memguard.backends.oom_view import OomView, blocks_by_address
from memguard.clocks import perf_counter
from memguard.evidence.oom.errors import is_host_oom
from memguard.evidence.oom.errors import requested_bytes as requested_in
from memguard.evidence.oom.objects import examine
from memguard.evidence.oom.stack import stack_of
from memguard.integrations.loop.forward_count import ForwardCount
from memguard.postmortem import Scene
from memguard.postmortem.estimate import room_bytes
from memguard.postmortem.replay import replay_with
from memguard.postmortem.scene import Objects, Replayed, Request, TopLine

if TYPE_CHECKING:
    from memguard.integrations.session import Session

logger = logging.getLogger("memguard")

PIECES = 0.05
"""Share of the reserved bytes that must lie free in pieces before other settings of the allocator are tried."""
ROUNDING = 512
"""What the allocators round sizes up to."""
RECORDS = 512


@final
@dataclass(frozen=True, slots=True)
class Seen:
    """A failure that was seen, of which it is open how it ends. Plain data."""

    scene: Scene
    snapshot: dict[str, Any] | None
    seconds: float


def draw(
    session: Session,
    view: OomView,
    error: BaseException | None,
    *,
    requested_bytes: int | None,
    free_bytes: int | None,
    is_recent: Callable[[nn.Module], bool],
    forwards: ForwardCount,
    traced_since: int | None,
) -> Seen:
    """Looks at everything once, with the exception or while the allocator is failing; nothing of it is kept.

    Args:
        session: Its records and its loop are part of the scene.
        view: The device.
        error: The exception; None where there is none yet.
        requested_bytes: What was asked of the driver, where the allocator told; else the error's text may.
        free_bytes: What the driver has left, where the allocator told.
        is_recent: Whether a root model was called in this batch or the last.
        forwards: How many forwards the failing batch and those before it had.
        traced_since: Batch from which the allocation history was on; None where it was always on, or off.
    """
    began = perf_counter()
    message = str(error) if error is not None else ""
    of_host = error is not None and is_host_oom(error)
    if of_host:
        view = OomView(HostBackend())
    if requested_bytes is None and message:
        requested_bytes = requested_in(message)
    steps, snapshot = view.steps(), view.snapshot()
    request = view.request(requested_bytes, free_bytes, snapshot)
    recorder = session.recorder
    objects = _objects(error, view, request, snapshot, is_recent, recorder.optimizer_steps)
    del error
    trace = snapshot if snapshot is not None and any(snapshot["device_traces"]) else None
    objects, replays = _with_history(objects, trace, view, request, recorder.batch, traced_since)
    scene = Scene(
        device="cpu" if of_host else view.device,
        rank=recorder.run.rank,
        batch=recorder.batch,
        stage=recorder.stage,
        epoch=recorder.run.epoch,
        message=message,
        request=request,
        objects=objects,
        in_phase=recorder.phases.open_now(),
        shapes=recorder.open_shapes,
        records=tuple(recorder.records)[-RECORDS:],
        shapes_of=dict(enumerate(recorder.shape_texts)),
        replays=replays,
        forwards=forwards.now,
        usual_forwards=forwards.usual,
        expandable=view.expandable,
        expandable_supported=view.expandable_supported,
        steps=steps,
        conf=view.conf,
        traced=trace is not None,
        validation=session.options.validation,
        host=HostBackend().read_slow() if of_host else None,
    )
    return Seen(scene, snapshot, perf_counter() - began)


def _objects(
    error: BaseException | None,
    view: OomView,
    request: Request,
    snapshot: dict[str, Any] | None,
    is_recent: Callable[[nn.Module], bool],
    optimizer_steps: int,
) -> Objects:
    """What is alive on the device, or of the failing line only what the stack shows."""
    blocks = blocks_by_address(snapshot) if not view.device.startswith("virtual") else {}
    stack = stack_of(error)
    try:
        with torch._C.DisableTorchFunctionSubclass():
            return examine(
                stack,
                on_device=view.holds,
                block_of=lambda address, nbytes: blocks.get(address) or -(-nbytes // ROUNDING) * ROUNDING,
                allocated_bytes=request.allocated_bytes,
                is_recent=is_recent,
                optimizer_steps=optimizer_steps,
                grad_enabled=torch.is_grad_enabled() or error is not None,
            )
    except Exception as problem:  # a report without owners is better than none
        logger.error("memguard: reading the live objects failed: %r", problem)
        return Objects(site=stack.site, phase=stack.phase)
    finally:
        stack.frames.clear()
        stack.losses.clear()
        del stack, error


def _with_history(
    objects: Objects, trace: dict[str, Any] | None, view: OomView, request: Request, batch: int, since: int | None
) -> tuple[Objects, tuple[Replayed, ...]]:
    """The objects with the lines that the allocation history tells of, and whether other settings would do."""
    if trace is None:
        return objects, ()
    try:
        index = int(view.device.partition(":")[2]) if view.device[5:].isdigit() else 0
        if lines := _lines(trace, index):
            objects = replace(objects, lines=lines, lines_allocated=True)
        if view.expandable is False and (request.pieces_bytes or 0) > PIECES * (request.reserved_bytes or 0):
            batches = batch - since + 1 if since is not None else None
            return objects, replay_with(trace, index, batches=batches, room_bytes=room_bytes(request))
    except Exception as problem:
        logger.error("memguard: the allocator's trace could not be read: %r", problem)
    return objects, ()


def _lines(snapshot: dict[str, Any], device: int) -> tuple[TopLine, ...]:
    """The user's lines that own the blocks in use, by the recorded stacks; none if most have no stack."""
    parsed = snapshot_of({**snapshot, "device_traces": []})
    lines = Lines()
    amounts = [
        (lines.of(block.stack), block.size)
        for segment in parsed.segments_of(device)
        for block in segment.blocks
        if block.state == "active_allocated"
    ]
    found = tuple(
        TopLine(file=line.file, line=line.line, function=line.function, bytes=line.bytes)
        for line in top_lines(amounts, 10)
        if line.file
    )
    stacked = sum(line.bytes for line in found)
    return found if 2 * stacked >= sum(size for _, size in amounts) else ()
