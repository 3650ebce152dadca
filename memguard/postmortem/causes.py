"""Why memory ran out: causes in the order in which their evidence excludes the others."""

from __future__ import annotations

from memguard.postmortem.estimate import fit, room_bytes
from memguard.postmortem.evidence import find_spike, floors_of
from memguard.postmortem.inputs import batch_shape, is_buffer, is_segment
from memguard.postmortem.leaks import FEW, find_kept_forwards, find_leak, find_pile, find_young_leak
from memguard.postmortem.scene import Request, Scene
from memguard.postmortem.trial import fits_as_it_is
from memguard.postmortem.verdict import SUBSTANTIAL, Cause, Verdict, matters, strongest_finding
from memguard.records.facts import NOWHERE
from memguard.records.stats import SlowStats, Stage
from memguard.text.units import format_bytes

MOSTLY_FREE = 0.5
"""Share of the device that must be free before something else than a tensor failed."""
MANY = 8
"""Forwards after which a program that has no optimizer is taken for one that only computes."""


def find_cause(scene: Scene) -> Verdict:
    """The most likely cause; what could have been left out and would have been enough comes before sheer size."""
    if scene.host is not None:
        return _host_memory(scene, scene.host)
    for find in (
        _elsewhere,
        _kept_exception,
        _other_process,
        _validation_graph,
        _several_models,
        find_leak,
        find_young_leak,
        find_kept_forwards,
        find_pile,
        _private_pools,
        find_fragmentation,
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


def _elsewhere(scene: Scene) -> Verdict | None:
    """Most of the device is free, and not for PyTorch's allocator was there too little."""
    request = scene.request
    free, limit = request.free_bytes, request.limit_bytes
    if free is None or not limit or free < MOSTLY_FREE * limit or (request.requested_bytes or 0) > free:
        return None
    return Verdict(
        cause=Cause.ELSEWHERE,
        text=f"Something else: {format_bytes(free)} of {format_bytes(limit)} are free, and PyTorch's allocator holds "
        f"only {format_bytes(request.reserved_bytes)}. What failed is another allocation: pinned host memory, the CUDA "
        "context, or a library's own allocation.",
        place=scene.objects.site,
    )


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
    if not held or _kept_back(request) < request.shortage_bytes or held < 0.2 * (request.limit_bytes or 0):
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


def _private_pools(scene: Scene) -> Verdict | None:
    """What pools that still have an owner keep free: a retry takes from those alone that nobody has any more."""
    held = scene.request.private_free_bytes or 0
    if not matters(scene, held):
        return None
    return Verdict(
        cause=Cause.PRIVATE_POOLS,
        text=f"Private pools: {format_bytes(held)} are free in pools of their own (torch.cuda.MemPool, CUDA graphs). "
        "Only what is allocated in such a pool gets them: neither a retry nor empty_cache() takes from one that is "
        f"still there. They would have been enough for {format_bytes(scene.request.requested_bytes)}.",
        bytes=held,
    )


def _kept_back(request: Request) -> int:
    """What this process could have besides, were there no others: a limit of its own may stand in the way too."""
    held = request.others_bytes or 0
    if request.limit_bytes is None or request.reserved_bytes is None or request.free_bytes is None:
        return held
    return min(held, max(request.limit_bytes - request.reserved_bytes - request.free_bytes, 0))


def _validation_graph(scene: Scene) -> Verdict | None:
    objects = scene.objects
    is_eval = objects.training is False or (objects.training is None and scene.stage.evaluates)
    evaluates = is_eval or objects.unused is True or trains_nothing(scene)
    graph = objects.owners.get("activations", 0)
    if not is_eval and any(hoard.feeds and hoard.bytes >= graph / 2 for hoard in objects.hoards):
        return None  # a state that is carried on: to cut it is enough
    if objects.unused is False:
        return None  # the source shows a backward that uses this forward: no_grad would break it
    if not evaluates or not objects.grad_enabled or not matters(scene, graph):
        return None
    if any(record.stage is Stage.TRAIN for record in scene.records[-1:]) and objects.phase == "backward":
        return None
    mode = "eval" if is_eval else "training"
    why = (
        "" if is_eval else ", no backward follows in the functions that call it" if objects.unused else ", none trains"
    )
    return Verdict(
        cause=Cause.VALIDATION_GRAPH,
        text=f"An autograd graph that is not used: the model is in {mode} mode{why}, gradients are enabled, and "
        f"{format_bytes(graph)} of activations are kept for a backward that does not come.",
        bytes=graph,
        place=objects.call_site if objects.call_site is not NOWHERE else objects.site,
        finding=strongest_finding(scene, ("MG201",)),
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
        text=f"Several models: beside the one in use, {len(idle)} more on this device ({names}) hold "
        f"{format_bytes(held)} with their gradients and optimizer state{kept}.",
        bytes=held,
        models=idle,
    )


def trains_nothing(scene: Scene) -> bool:
    """Whether the program has no optimizer, no gradient and no finished batch: it only computes."""
    objects = scene.objects
    if objects.optimizers or objects.gradient_bytes or scene.records or objects.phase == "backward":
        return False
    return scene.forwards >= MANY


def _optimizer_state(scene: Scene) -> Verdict | None:
    for optimizer in scene.objects.optimizers:
        # Lightning's forwards and backwards run inside the optimizer's step too.
        first = optimizer.steps == 0 and optimizer.stepping and scene.objects.phase == "optimizer step"
        after = optimizer.steps == 1 and not optimizer.stepping and optimizer.state_bytes > 0
        needed = (optimizer.full_state_bytes or optimizer.state_bytes) + (optimizer.temporary_bytes if first else 0)
        if not (first or after) or not matters(scene, needed):
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
        place=scene.objects.batching if scene.objects.batching.file else scene.objects.call_site,
        spike=spike,
    )


def _size(scene: Scene) -> Verdict:
    shape = batch_shape(scene)
    activations = scene.objects.owners.get("activations", 0) + scene.objects.owners.get("temporaries", 0)
    fixed = (scene.request.allocated_bytes or 0) - activations
    requested, limit = scene.request.requested_bytes, scene.request.limit_bytes
    if is_buffer(scene) and scene.steps is not None and scene.steps.wanted is not None:
        wanted = scene.steps.wanted
        return Verdict(
            cause=Cause.SIZE,
            text=f"Size: a fixed buffer of {list(wanted.shape)} takes {format_bytes(wanted.nbytes)}, "
            f"{format_bytes(scene.request.allocated_bytes)} were in use already, and the device has "
            f"{format_bytes(limit)}.",
            place=scene.objects.site,
        )
    if requested is not None and limit is not None and requested > limit:
        asked = f"this one tensor of {format_bytes(requested)}"
        if is_segment(requested):
            asked = f"a segment of {format_bytes(requested)}, which PyTorch takes for smaller tensors too,"
        return Verdict(
            cause=Cause.SIZE,
            text=f"Size: {asked} is larger than the device ({format_bytes(limit)}).",
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
    kept = scene.objects.owners.get("outputs", 0)
    if 0 < len(floors_of(scene)) < FEW and kept >= SUBSTANTIAL * (scene.request.allocated_bytes or 0):
        text += f" Of that, something keeps {format_bytes(kept)}; there were too few batches to see whether it grows."
    return Verdict(cause=Cause.SIZE, text=text, bytes=activations)


# Whether memory ran out only because free memory is fragmented.

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
