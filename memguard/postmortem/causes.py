"""Why memory ran out: the causes in the order in which their evidence excludes the others."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from memguard.facts import NOWHERE, Place
from memguard.findings import Finding
from memguard.postmortem.estimate import fit, room_bytes
from memguard.postmortem.evidence import Spike, find_spike, floor_growth, inputs_grew, largest_batch_bytes
from memguard.postmortem.inputs import batch_shape
from memguard.postmortem.scene import HeldException, HeldModel, Hoard, OptimizerUse, Scene
from memguard.stats import SlowStats, Stage
from memguard.units import format_bytes

LEAKS = ("MG101", "MG102", "MG103", "MG104", "MG105", "MG301", "MG302", "MG306", "MG501")
"""Rules whose finding explains a floor that rose."""
MANY_FORWARDS = 4
"""Times the forwards of a usual batch, from which their number is remarkable."""
FULL = 0.95
"""Share of the device from which on the state of an optimizer fills it: what is left lies in pieces."""
SUBSTANTIAL = 0.1
"""Share of the allocated bytes below which nothing is called the cause."""


class Cause(enum.Enum):
    """Why a request found no memory."""

    SIZE = "size"
    LEAK = "leak"
    FRAGMENTATION = "fragmentation"
    LONG_BATCH = "long-batch"
    VALIDATION_GRAPH = "validation-graph"
    OPTIMIZER_STATE = "optimizer-state"
    SEVERAL_MODELS = "several-models"
    KEPT_EXCEPTION = "kept-exception"
    OTHER_PROCESS = "other-process"
    HOST_MEMORY = "host-memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A cause with its evidence."""

    cause: Cause
    text: str
    """One or two sentences."""
    bytes: int = 0
    """What would be free without it."""
    place: Place = NOWHERE
    finding: Finding | None = None
    hoard: Hoard | None = None
    models: tuple[HeldModel, ...] = ()
    exception: HeldException | None = None
    optimizer: OptimizerUse | None = None
    spike: Spike | None = None
    evidence: dict[str, Any] = field(default_factory=dict)


def find_cause(scene: Scene) -> Verdict:
    """The most likely cause; what could have been left out and would have been enough comes before sheer size."""
    if scene.host is not None:
        return _host_memory(scene, scene.host)
    for find in (
        _kept_exception,
        _other_process,
        _validation_graph,
        _several_models,
        _leak,
        _forwards,
        _fragmentation,
    ):
        found = find(scene)
        if found is not None:
            return found
    return _optimizer_state(scene) or _long_batch(scene) or _size(scene)


def _host_memory(scene: Scene, host: SlowStats) -> Verdict:
    limit = f" of a limit of {format_bytes(host.host_limit_bytes)}" if host.host_limit_bytes is not None else ""
    told = [f"{format_bytes(host.host_rss_bytes)} are this process's"] if host.host_rss_bytes is not None else []
    if host.num_workers and host.workers_rss_bytes is not None:
        told.append(f"{format_bytes(host.workers_rss_bytes)} those of {host.num_workers} children (DataLoader workers)")
    shared = ""
    if host.shm_free_bytes is not None and host.shm_total_bytes:
        shared = (
            f" Of shared memory {format_bytes(host.shm_free_bytes)} of {format_bytes(host.shm_total_bytes)} are free."
        )
    return Verdict(
        cause=Cause.HOST_MEMORY,
        text=f"Host memory: not the device but RAM ran out. {format_bytes(host.host_used_bytes)}{limit} are in use"
        f"{': ' if told else ''}{', '.join(told)}.{shared}",
        bytes=host.workers_rss_bytes or 0,
    )


def matters(scene: Scene, nbytes: int) -> bool:
    """Whether so many bytes would have been enough for the request, and are no small part of what is allocated."""
    allocated = scene.request.allocated_bytes or 0
    return nbytes >= scene.request.shortage_bytes and nbytes >= SUBSTANTIAL * allocated


def _kept_exception(scene: Scene) -> Verdict | None:
    held = max(scene.objects.exceptions, key=lambda each: each.bytes, default=None)
    if held is None or not matters(scene, held.bytes):
        return None
    how = "the program is still inside the except block of" if held.handling else "something still keeps"
    if not held.handling and held.place.holder:
        how = f"`{held.place.holder}` still keeps"
    names = f": {', '.join(held.names[:3])}" if held.names else ""
    return Verdict(
        cause=Cause.KEPT_EXCEPTION,
        text=f"A kept exception: {how} an earlier {held.exception}, and its traceback keeps {format_bytes(held.bytes)} "
        f"of the failed call alive{names}.",
        bytes=held.bytes,
        place=held.place,
        exception=held,
    )


def _other_process(scene: Scene) -> Verdict | None:
    request = scene.request
    held = request.others_bytes or 0
    if not held or held < request.shortage_bytes or held < 0.2 * (request.limit_bytes or 0):
        return None
    if held < (request.allocated_bytes or 0) / 2:
        return None
    told = [f"pid {pid}" + (f" with {format_bytes(nbytes)}" if nbytes else "") for pid, nbytes in request.others]
    who = f" ({', '.join(told[:4])})" if told else ""
    return Verdict(
        cause=Cause.OTHER_PROCESS,
        text=f"Another process: others hold {format_bytes(held)} of this device{who}; this one has only "
        f"{format_bytes(request.allocated_bytes)} allocated.",
        bytes=held,
    )


def _fragmentation(scene: Scene) -> Verdict | None:
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
    return Verdict(
        cause=Cause.FRAGMENTATION,
        text=f"Fragmentation: {format_bytes(request.pieces_bytes)} are free inside PyTorch's allocator, but in pieces "
        f"between tensors in use{biggest}. In one place they would have been enough for "
        f"{format_bytes(request.requested_bytes)}.",
        bytes=request.pieces_bytes,
    )


def _fitted_before(scene: Scene) -> bool:
    """Whether the batch as such fits: by a replay, by the run's own slope, or since as much was allocated before."""
    if any(replayed.fits for replayed in scene.replays):
        return True
    needed = (scene.request.allocated_bytes or 0) + (scene.request.requested_bytes or 0)
    if any((record.allocated_peak_bytes or 0) >= 0.95 * needed for record in scene.records):
        return True
    estimate, room = fit(scene), room_bytes(scene)
    return estimate is None or room is None or estimate.fixed_bytes + estimate.bytes_per_batch <= room


def _fills_with_state(scene: Scene) -> bool:
    """Whether an optimizer is in its first step, and the state it makes will leave next to nothing free."""
    request = scene.request
    for optimizer in scene.objects.optimizers:
        if optimizer.steps == 0 and optimizer.stepping and optimizer.full_state_bytes:
            missing = optimizer.full_state_bytes - optimizer.state_bytes
            if (request.allocated_bytes or 0) + missing > FULL * (request.limit_bytes or 0):
                return True
    return False


def _validation_graph(scene: Scene) -> Verdict | None:
    objects = scene.objects
    evaluates = objects.training is False or (objects.training is None and scene.stage.evaluates)
    graph = objects.owners.get("activations", 0)
    if not evaluates or not objects.grad_enabled or not matters(scene, graph):
        return None
    if any(record.stage is Stage.TRAIN for record in scene.records[-1:]) and objects.phase == "backward":
        return None
    return Verdict(
        cause=Cause.VALIDATION_GRAPH,
        text=f"Validation builds an autograd graph: the model is in eval mode, gradients are enabled, and "
        f"{format_bytes(graph)} of activations are kept for a backward that does not come.",
        bytes=graph,
        place=objects.site,
        finding=_finding(scene, ("MG201",)),
    )


def _several_models(scene: Scene) -> Verdict | None:
    idle = tuple(model for model in scene.objects.models if not model.current)
    held = sum(model.bytes for model in idle)
    if not idle or len(idle) == len(scene.objects.models) or not matters(scene, held):
        return None
    if held < 0.3 * (scene.request.allocated_bytes or 0):
        return None
    holders = sorted({model.holder for model in idle if model.holder})
    kept = f", kept by {', '.join(f'`{holder}`' for holder in holders[:3])}" if holders else ""
    names = ", ".join(sorted({model.name for model in idle}))
    return Verdict(
        cause=Cause.SEVERAL_MODELS,
        text=f"Several models: besides the one in use, {len(idle)} more on this device ({names}) hold "
        f"{format_bytes(held)} with their gradients and optimizer state{kept}.",
        bytes=held,
        models=idle,
    )


def _leak(scene: Scene) -> Verdict | None:
    growth, batches, per_batch = floor_growth(scene)
    bounded = [hoard for hoard in scene.objects.hoards if _is_bounded(scene, hoard)]
    piles = (each for each in scene.objects.hoards if _piles_up(scene, each))
    hoard = next((each for each in piles if each not in bounded), None)
    growth = max(growth - sum(each.bytes for each in bounded), 0)
    found = _finding(scene, LEAKS, besides=tuple(each.place.holder for each in bounded))
    held = max(growth, hoard.bytes if hoard is not None and hoard.tensors >= 3 else 0)
    if not matters(scene, growth) and not (growth > 0 and found is not None and matters(scene, held)):
        return None
    if hoard is not None and hoard.bytes < growth / 4:
        hoard = None
    if hoard is None and found is None and (inputs_grew(scene) or any(replayed.fits for replayed in scene.replays)):
        return None  # a growth that nothing names, and something else that explains it
    place, who = NOWHERE, ""
    if found is not None and found.file:
        place = Place(file=found.file, line=found.line, function=found.function, holder=found.holder)
        who = f" {found.code} names what keeps it: `{found.holder}`, line {found.line}." if found.holder else ""
    if not who and hoard is not None and hoard.place.holder:
        place = hoard.place
        who = f" {_said_of(hoard)}"
    return Verdict(
        cause=Cause.LEAK,
        text=f"A leak: what stays allocated after a batch grew by {format_bytes(growth)} over {batches} batches, "
        f"{format_bytes(per_batch)} with each.{who}",
        bytes=held,
        place=place,
        finding=found,
        hoard=hoard,
        evidence={"growth_bytes": growth, "batches": batches, "bytes_per_batch": per_batch},
    )


def _forwards(scene: Scene) -> Verdict | None:
    """Many forwards in a row whose graphs something keeps, where a batch has one: an evaluation that adds up losses."""
    usual = scene.usual_forwards
    hoard = next((hoard for hoard in scene.objects.hoards if hoard.graph), None)
    if not usual or scene.forwards < MANY_FORWARDS * usual or scene.objects.phase == "backward":
        return None
    if hoard is None or hoard.bytes < scene.objects.owners.get("activations", 0) / 2 or not matters(scene, hoard.bytes):
        return None
    return Verdict(
        cause=Cause.LEAK,
        text=f"A leak: {scene.forwards} forwards in a row without a backward, and their autograd graphs are all kept "
        f"(a training batch had {usual}). {_said_of(hoard)}",
        bytes=hoard.bytes,
        place=hoard.place,
        hoard=hoard,
        evidence={"forwards": scene.forwards, "usual_forwards": usual},
    )


def _said_of(hoard: Hoard) -> str:
    holder, held = hoard.place.holder, format_bytes(hoard.bytes)
    if hoard.feeds == "carried":
        return f"`{holder}` goes from each batch into the next with the graphs of all before it ({held})."
    if hoard.feeds == "added":
        return f"`{holder}` is a total that keeps the graph of everything added to it ({held})."
    kind = "with their autograd graphs" if hoard.graph else "detached, but on the device"
    if hoard.tensors == 1:
        return f"`{holder}` keeps {held}, {kind.replace('their', 'its')}."
    return f"`{holder}` holds {hoard.tensors} tensors ({held}), {kind}."


def _piles_up(scene: Scene, hoard: Hoard) -> bool:
    """Whether a hoard is of many batches: a single tensor is, if its graph holds more than a batch ever took."""
    if hoard.tensors >= 3 or hoard.feeds:
        return True
    return hoard.graph and hoard.bytes > 1.5 * largest_batch_bytes(scene)


def _is_bounded(scene: Scene, hoard: Hoard) -> bool:
    """Whether a hoard stops growing by itself, before it alone would fill the device."""
    if hoard.most is None or not hoard.tensors:
        return False
    return hoard.bytes / hoard.tensors * hoard.most < 0.9 * (scene.request.limit_bytes or 0)


def _optimizer_state(scene: Scene) -> Verdict | None:
    for optimizer in scene.objects.optimizers:
        first = optimizer.steps == 0 and optimizer.stepping
        after = optimizer.steps == 1 and not optimizer.stepping and optimizer.state_bytes > 0
        needed = (optimizer.full_state_bytes or optimizer.state_bytes) + (optimizer.temporary_bytes if first else 0)
        if not (first or after) or needed < scene.request.shortage_bytes:
            continue
        state = optimizer.full_state_bytes or optimizer.state_bytes
        when = "its first step" if first else "the batch after its first step"
        extra = f" and {format_bytes(optimizer.temporary_bytes)} for a moment" if optimizer.temporary_bytes else ""
        return Verdict(
            cause=Cause.OPTIMIZER_STATE,
            text=f"The first optimizer step: {optimizer.name} keeps {format_bytes(state)} of state{extra} from its "
            f"first step on, so memory runs out in {when}, after forwards and backwards that fitted.",
            bytes=needed,
            optimizer=optimizer,
        )
    return None


def _long_batch(scene: Scene) -> Verdict | None:
    spike = find_spike(scene)
    if spike is None:
        return None
    return Verdict(
        cause=Cause.LONG_BATCH,
        text=f"One long batch: its input is {list(spike.shape)}, {spike.elements / spike.usual_elements:.1f} times "
        f"the usual {list(spike.usual_shape)}; no batch before was as large.",
        spike=spike,
    )


def _size(scene: Scene) -> Verdict:
    shape = batch_shape(scene)
    activations = scene.objects.owners.get("activations", 0) + scene.objects.owners.get("temporaries", 0)
    fixed = (scene.request.allocated_bytes or 0) - activations
    requested, limit = scene.request.requested_bytes, scene.request.limit_bytes
    if requested is not None and limit is not None and requested > limit:
        return Verdict(
            cause=Cause.SIZE,
            text=f"Size: this one tensor of {format_bytes(requested)} is larger than the device "
            f"({format_bytes(limit)}).",
            place=scene.objects.site,
        )
    if shape is not None and activations >= SUBSTANTIAL * (scene.request.allocated_bytes or 0):
        text = (
            f"Size: a batch of {list(shape)} needs more than there is. {format_bytes(activations)} are activations, "
            f"which shrink with the batch; {format_bytes(fixed)} stay whatever its size."
        )
    else:
        text = (
            f"Size: what is on the device needs more than there is; {format_bytes(fixed)} of it does not depend on "
            "the batch."
        )
    return Verdict(cause=Cause.SIZE, text=text, bytes=activations)


def _finding(scene: Scene, codes: tuple[str, ...], besides: tuple[str | None, ...] = ()) -> Finding | None:
    found = [finding for finding in scene.findings if finding.code in codes]
    found = [finding for finding in found if finding.holder is None or finding.holder not in besides]
    return max(found, key=lambda each: (each.file is not None, each.bytes or 0), default=None)
