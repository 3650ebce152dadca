"""What to change, with the gain of each change estimated from the run's own numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from memguard.postmortem.estimate import fit
from memguard.postmortem.evidence import find_spike
from memguard.postmortem.inputs import batch_shape, is_buffer, is_segment, shape_of, share_first
from memguard.postmortem.letting_go import at, let_go
from memguard.postmortem.scene import Replayed, Request, Scene
from memguard.postmortem.trial import largest_that_fits
from memguard.postmortem.verdict import Advice, Cause, Verdict
from memguard.text.units import format_bytes

MOST = 4
EXPANDABLE = "expandable_segments:True"
BUFFER_ROOM = 0.75
"""Share of the device that buffers may take: what works on them needs some too."""
LEAST = 0.25
"""Share of what was lacking that a change must save to be worth a line."""
_ELSEWHERE = (
    "check what this line allocates outside PyTorch's allocator: pin less host memory (pin_memory, prefetch_factor), "
    "leave room for the library that failed (set_per_process_memory_fraction), or set CUDA_LAUNCH_BLOCKING=1 to see "
    "which call it was."
)


def advise(scene: Scene, verdict: Verdict) -> tuple[Advice, ...]:
    """The changes that help most, best first; at most four."""
    cause = verdict.cause
    found: list[Advice] = []
    if cause is Cause.FRAGMENTATION:
        found += _against_fragmentation(scene)
    elif cause is Cause.PRIVATE_POOLS:
        found.append(_let_go_of_pools(scene, verdict))
    elif cause is Cause.OTHER_PROCESS:
        found += _against_others(scene, verdict)
    elif cause is Cause.HOST_MEMORY:
        found += _against_host(scene)
    elif cause is Cause.OPTIMIZER_STATE:
        found += _against_state(scene, verdict)
    elif cause is Cause.LONG_BATCH:
        found += _against_length(scene, verdict)
    elif cause is Cause.ELSEWHERE:
        found.append(Advice(kind="elsewhere", text=_ELSEWHERE, place=verdict.place))
    elif cause is not Cause.SIZE:
        found.append(let_go(scene, verdict))
    if cause in (Cause.SIZE, Cause.LONG_BATCH) or not found:
        found += _smaller(scene)
    return tuple(_worth_saying(scene, found)[:MOST])


def _worth_saying(scene: Scene, found: list[Advice]) -> list[Advice]:
    """What saves enough to matter; a saving that is more than the device has is no number to print."""
    request = scene.request
    enough = [each for each in found if each.gain_bytes is None or each.gain_bytes >= LEAST * request.shortage_bytes]
    limit = request.limit_bytes
    return [replace(each, gain_bytes=None) if limit and (each.gain_bytes or 0) > limit else each for each in enough]


def _against_fragmentation(scene: Scene) -> Iterator[Advice]:
    for replayed in scene.replays:
        if replayed.fits and scene.expandable is False and scene.expandable_supported and replayed.conf == EXPANDABLE:
            yield Advice(
                kind="expandable",
                text=f"start with PYTORCH_CUDA_ALLOC_CONF={EXPANDABLE}: replayed with it, {_stretch(replayed)} peak at "
                f"{format_bytes(replayed.reserved_peak_bytes)} reserved and fit.",
                gain_bytes=_saved(scene.request, replayed),
            )
    if _shapes_vary(scene):
        yield Advice(
            kind="pad",
            text="pad inputs to a few fixed lengths, or let the longest batch come first: blocks of the same sizes are "
            "used again instead of being cut into pieces.",
        )
    if not scene.traced and scene.expandable is False and scene.expandable_supported:
        yield Advice(
            kind="history",
            text='run once more with history="always": then memguard replays the run with other settings of the '
            "allocator, and says which of them would have fitted.",
        )


def _shapes_vary(scene: Scene) -> bool:
    """Whether the inputs of the batches that were recorded have more than two shapes."""
    shapes = {shape_of(scene, record) for record in scene.records}
    return len((shapes | {batch_shape(scene)}) - {None}) > 2


def _saved(request: Request, replayed: Replayed) -> int | None:
    """How much less is reserved than the failing moment needed without it."""
    if request.reserved_bytes is None or request.requested_bytes is None:
        return None
    return max(request.reserved_bytes + request.requested_bytes - replayed.reserved_peak_bytes, 0) or None


def _stretch(replayed: Replayed) -> str:
    events = f"{replayed.events:,} allocations and frees"
    if replayed.batches is None:
        return f"this run's last {events}"
    return (
        f"this run's last {replayed.batches} batches ({events})" if replayed.batches > 1 else f"this batch's {events}"
    )


def _against_others(scene: Scene, verdict: Verdict) -> Iterator[Advice]:
    request = scene.request
    if request.others:
        pids = ", ".join(str(pid) for pid, _ in request.others[:4])
        yield Advice(
            kind="other-process",
            text=f"end the other process on this device if it is yours (pid {pids}), or take another device.",
            gain_bytes=request.others_bytes,
        )
    else:
        yield Advice(
            kind="other-process",
            text="see with nvidia-smi who else is on this device, or take another one.",
            gain_bytes=request.others_bytes,
        )


def _let_go_of_pools(scene: Scene, verdict: Verdict) -> Advice:
    """The allocator may take whole pieces of a pool that was made for that; what is in smaller ones it may not."""
    text = "let go of the pool where its work is done: del the MemPool or the CUDA graph, and what was allocated in it"
    if (scene.request.largest_private_bytes or 0) >= (scene.request.requested_bytes or 0):
        text += (
            "; or make it with torch.cuda.MemPool(use_on_oom=True), so that others get what is free before they fail"
        )
    return Advice(kind="private-pools", text=f"{text}. Give several captures one pool.", gain_bytes=verdict.bytes)


def _against_host(scene: Scene) -> Iterator[Advice]:
    host = scene.host
    if host is not None and host.num_workers and host.workers_rss_bytes:
        yield Advice(
            kind="workers",
            text=f"use fewer DataLoader workers than {host.num_workers}, or a smaller prefetch_factor.",
            gain_bytes=host.workers_rss_bytes // 2,
        )
    yield Advice(
        kind="host",
        text="do not hold the whole data set in lists of Python objects: read it as it is needed, or keep it in one "
        "array or memory map, which workers share.",
    )
    if host is not None and host.shm_free_bytes is not None and host.shm_free_bytes < 256 * 1024**2:
        yield Advice(
            kind="shm", text="give the container more shared memory (docker run --shm-size=8g, or --ipc=host)."
        )


def _against_state(scene: Scene, verdict: Verdict) -> Iterator[Advice]:
    optimizer = verdict.optimizer
    if optimizer is None:
        return
    state = optimizer.full_state_bytes or optimizer.state_bytes
    missing = state - optimizer.state_bytes
    place = replace(verdict.place, holder=optimizer.name)
    request = scene.request
    free = (request.free_bytes or 0) + (request.pieces_bytes or 0)
    if optimizer.stepping and optimizer.temporary_bytes and missing <= free:
        yield Advice(
            kind="fused",
            text=f"pass fused=True (or foreach=False) to {optimizer.name}: it then needs no temporary copies of all "
            "parameters in its step, and computes the same.",
            place=place,
            gain_bytes=optimizer.temporary_bytes,
        )
    if state:
        yield Advice(
            kind="optimizer",
            text=f"use an optimizer with less state than {optimizer.name}: torch.optim.Adafactor (from torch 2.5 on) "
            "keeps almost none; an 8-bit one (bitsandbytes) keeps a quarter and saves "
            f"{format_bytes(0.75 * state)}.",
            place=place,
            gain_bytes=round(0.95 * state),
        )
    yield Advice(
        kind="shard",
        text="train fewer parameters (freeze layers, LoRA), or shard parameters and state over several devices (FSDP).",
        gain_bytes=round(0.5 * state),
    )


def _against_length(scene: Scene, verdict: Verdict) -> Iterator[Advice]:
    spike = verdict.spike
    if spike is None or (spike.axis == 0 and share_first(scene)):  # said as a batch size
        return
    tried, largest = largest_that_fits(scene, spike.axis), fit(scene)
    longest = spike.shape[spike.axis]
    by_slope = int(largest.elements / spike.elements * longest) if largest is not None else longest
    # Lengths come apart less surely than batches: the smaller of two answers.
    limit = min(by_slope, tried.length if tried is not None else longest)
    if not 0 < limit < longest:
        return
    known = _proof(replayed=tried is not None and tried.replayed)
    shape = [limit if axis == spike.axis else length for axis, length in enumerate(spike.shape)]
    yield Advice(
        kind="length",
        text=f"limit the input to {shape} (dimension {spike.axis}: {limit} instead of {longest}): {known}. Cut or drop "
        "longer ones, or batch by number of elements.",
        value=limit,
        instead_of=longest,
        place=scene.objects.call_site,
        replayed=tried is not None and tried.replayed,
    )


def _proof(*, replayed: bool) -> str:
    if replayed:
        return "that was replayed through the simulated allocator, and fits"
    return "at most about so much, not tried: no finished step can be replayed as it ran"


def _smaller(scene: Scene) -> Iterator[Advice]:
    """Ways to need less, where nothing is wrong but the size."""
    objects, request = scene.objects, scene.request
    activations, allocated = objects.owners.get("activations", 0), max(request.allocated_bytes or 0, 1)
    requested, trains = request.requested_bytes or 0, _trains(scene)
    is_larger = requested > (request.limit_bytes or requested)
    if is_larger and is_segment(requested):
        yield Advice(kind="device", text=f"take a device of {format_bytes(requested)} at the very least.")
        return
    yield from _smaller_batch(scene)
    yield from _smaller_buffer(scene)
    if is_larger:
        yield Advice(
            kind="shape",
            text=f"check the requested shape{at(objects.site)}: an outer product, a broadcast or a one-hot "
            "in full size is often meant to be smaller, or can be computed in parts.",
            place=objects.site,
        )
    if objects.float32_activation_bytes > 0.2 * allocated and trains:
        yield Advice(
            kind="autocast",
            text="run the forward under torch.autocast with bfloat16: activations take half.",
            gain_bytes=objects.float32_activation_bytes // 2,
        )
    if objects.layers >= 9 and activations and trains:
        yield Advice(
            kind="checkpoint",
            text="checkpoint activations (torch.utils.checkpoint) in the repeated blocks: they are computed again in "
            "the backward instead of kept, for about a third more time.",
            gain_bytes=round(activations * (1 - 2 / math.sqrt(objects.layers))),
        )
    state = sum(optimizer.full_state_bytes or optimizer.state_bytes for optimizer in objects.optimizers)
    if state > 0.2 * allocated:
        yield Advice(
            kind="optimizer",
            text="use an optimizer with less state: an 8-bit one (bitsandbytes) keeps a quarter.",
            gain_bytes=round(0.75 * state),
        )


def _trains(scene: Scene) -> bool:
    """Whether the failing batch is one of training: gradients may be accumulated, activations computed again."""
    return scene.objects.grad_enabled and scene.objects.training is not False and not scene.stage.evaluates


def _smaller_batch(scene: Scene) -> Iterator[Advice]:
    shape, request = batch_shape(scene), scene.request
    if shape is None or shape[0] < 2 or not share_first(scene):
        return
    largest, tried = fit(scene), largest_that_fits(scene)
    if scene.steps is not None:
        batch, replayed = (tried.length, tried.replayed) if tried is not None else (0, False)
        if find_spike(scene) is not None and largest is not None:  # what smaller batches left behind is in pieces
            batch = min(batch, largest.batch)
    else:
        batch, replayed = (largest.batch, False) if largest is not None else (0, False)
        if largest is not None and largest.bytes_per_batch < request.shortage_bytes:
            return
    if not 1 <= batch < shape[0]:
        return
    text = f"make the batch {batch} instead of {shape[0]}: {_proof(replayed=replayed)}."
    steps = math.ceil(shape[0] / batch)
    if _trains(scene):
        text += (
            f" For the same effective batch, accumulate gradients over {steps} batches of "
            f"{'at most ' if shape[0] % steps else ''}{math.ceil(shape[0] / steps)}."
        )
    yield Advice(kind="batch", text=text, value=batch, instead_of=shape[0], replayed=replayed)


def _smaller_buffer(scene: Scene) -> Iterator[Advice]:
    """A tensor of a fixed size, made outside of any step, that is a large part of the device."""
    wanted, limit = scene.steps.wanted if scene.steps is not None else None, scene.request.limit_bytes or 0
    shape = wanted.shape if wanted is not None else ()
    if wanted is None or not is_buffer(scene) or scene.steps is None or not shape:
        return
    alike = [event.nbytes for event in scene.steps.live if event.shape and event.shape[0] == shape[0]]
    others = (scene.request.allocated_bytes or 0) - sum(alike)
    rows = int(BUFFER_ROOM * (limit - others) / max(sum(alike) + wanted.nbytes, 1) * shape[0])
    if not 0 < rows < shape[0]:
        return
    yield Advice(
        kind="buffer",
        text=f"make the buffer{at(scene.objects.site)} smaller, or keep it on the CPU: with all that it is made of, "
        f"at most about {rows} rows instead of {shape[0]} would have fitted (not tried). A smaller dtype (float16, "
        "uint8) takes less too.",
        place=scene.objects.site,
        value=rows,
        instead_of=shape[0],
    )
