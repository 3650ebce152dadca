"""What to change, with the gain of each change estimated from the run's own numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from memguard.facts import Place
from memguard.places import place_text
from memguard.postmortem.estimate import fit
from memguard.postmortem.inputs import batch_shape, is_segment, share_first
from memguard.postmortem.scene import Hoard, Replayed, Request, Scene
from memguard.postmortem.verdict import Cause, Verdict
from memguard.units import format_bytes

MOST = 4
EXPANDABLE = "expandable_segments:True"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One change."""

    text: str
    gain_bytes: int | None = None
    """What it saves at the failing moment; None where that cannot be said."""
    value: int | None = None
    """The number it proposes, where it proposes one: a batch size, a length."""


def advise(scene: Scene, verdict: Verdict) -> tuple[Advice, ...]:
    """The changes that help most, best first; at most four."""
    cause = verdict.cause
    found: list[Advice] = []
    if cause is Cause.FRAGMENTATION:
        found += _against_fragmentation(scene)
    elif cause is Cause.OTHER_PROCESS:
        found += _against_others(scene, verdict)
    elif cause is Cause.HOST_MEMORY:
        found += _against_host(scene)
    elif cause is Cause.OPTIMIZER_STATE:
        found += _against_state(scene, verdict)
    elif cause is Cause.LONG_BATCH:
        found += _against_length(scene, verdict)
    elif cause is not Cause.SIZE:
        found.append(_let_go(scene, verdict))
    if cause in (Cause.SIZE, Cause.LONG_BATCH):
        found += _smaller(scene)
    return tuple(found[:MOST])


def _let_go(scene: Scene, verdict: Verdict) -> Advice:
    where = _at(verdict.place)
    if verdict.cause is Cause.KEPT_EXCEPTION:
        if verdict.exception is not None and verdict.exception.handling:
            text = (
                "leave the except block before trying again: set a flag inside it, and retry after it (or use "
                "memguard.find_batch_size). What the failed call held is free then."
            )
        else:
            kept = f" in `{verdict.place.holder}`" if verdict.place.holder else ""
            text = f"do not keep the exception{kept}{where}: keep str(error), or set error.__traceback__ = None."
    elif verdict.cause is Cause.VALIDATION_GRAPH:
        text = f"put the forward{where} under `with torch.no_grad():`"
        text += "." if scene.validation == "guard" else ', or pass validation="guard" and memguard does it.'
    elif verdict.cause is Cause.SEVERAL_MODELS:
        names = sorted({model.holder for model in verdict.models if model.holder})
        who = f" ({', '.join(f'`{name}`' for name in names[:3])})" if names else ""
        text = f"let go of the models you are done with{who}, or keep them on the CPU: `del` model and optimizer, or "
        text += "`model.to('cpu')`."
    elif verdict.finding is not None and verdict.finding.advice and verdict.finding.holder:
        text = verdict.finding.advice
    elif verdict.hoard is not None and verdict.place.holder and verdict.hoard.feeds:
        text = _cut_feedback(verdict.hoard, verdict.place.holder, where, evaluates="forwards" in verdict.evidence)
    elif verdict.hoard is not None and verdict.place.holder:
        copy = "tensor.detach().cpu()" if verdict.hoard.attached else "tensor.cpu()"
        what = "store numbers: `loss.item()`" if verdict.hoard.graph else f"store them on the CPU: `{copy}`"
        text = f"do not let `{verdict.place.holder}`{where} keep tensors of every batch: {what}, or a bounded number."
    else:
        text = "find what keeps tensors of every batch (a list, a total of losses, a cache), and store numbers instead."
    return Advice(text=text, gain_bytes=verdict.bytes or None)


def _cut_feedback(hoard: Hoard, holder: str, where: str, *, evaluates: bool) -> str:
    if hoard.feeds == "carried":
        cut = f"where `{holder}` goes into the next {'turn' if evaluates else 'batch'}{where}"
        text = f"cut the graph {cut}: `{holder} = {holder}.detach()`."
        return f"{text} Where nothing is trained, put it under `with torch.no_grad():`." if evaluates else text
    number = f"add numbers to `{holder}`{where}: `{holder} += loss.item()`."
    if evaluates:
        return f"{number} If this is an evaluation, put it under `with torch.no_grad():` and call model.eval()."
    return number


def _against_fragmentation(scene: Scene) -> Iterator[Advice]:
    for replayed in scene.replays:
        if replayed.fits and scene.expandable is False and scene.expandable_supported and replayed.conf == EXPANDABLE:
            yield Advice(
                text=f"start with PYTORCH_CUDA_ALLOC_CONF={EXPANDABLE}: replayed with it, {_stretch(replayed)} peak at "
                f"{format_bytes(replayed.reserved_peak_bytes)} reserved and fit.",
                gain_bytes=_saved(scene.request, replayed),
            )
    shape = batch_shape(scene)
    if shape is not None and len(shape) > 1:
        yield Advice(
            text="pad inputs to a few fixed lengths, or let the longest batch come first: blocks of the same sizes are "
            "used again instead of being cut into pieces."
        )
    if not scene.traced and scene.expandable is False and scene.expandable_supported:
        yield Advice(
            text='run once more with history="always": then memguard replays the run with other settings of the '
            "allocator, and says which of them would have fitted."
        )


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
            text=f"end the other process on this device if it is yours (pid {pids}), or take another device.",
            gain_bytes=request.others_bytes,
        )
    else:
        yield Advice(
            text="see with nvidia-smi who else is on this device, or take another one.", gain_bytes=request.others_bytes
        )


def _against_host(scene: Scene) -> Iterator[Advice]:
    host = scene.host
    if host is not None and host.num_workers and host.workers_rss_bytes:
        yield Advice(
            text=f"use fewer DataLoader workers than {host.num_workers}, or a smaller prefetch_factor.",
            gain_bytes=host.workers_rss_bytes // 2,
        )
    yield Advice(
        text="do not hold the whole data set in lists of Python objects: read it as it is needed, or keep it in one "
        "array or memory map, which workers share."
    )
    if host is not None and host.shm_free_bytes is not None and host.shm_free_bytes < 256 * 1024**2:
        yield Advice(text="give the container more shared memory (docker run --shm-size=8g, or --ipc=host).")


def _against_state(scene: Scene, verdict: Verdict) -> Iterator[Advice]:
    optimizer = verdict.optimizer
    if optimizer is None:
        return
    state = optimizer.full_state_bytes or optimizer.state_bytes
    missing = state - optimizer.state_bytes
    request = scene.request
    free = (request.free_bytes or 0) + (request.pieces_bytes or 0)
    if optimizer.stepping and optimizer.temporary_bytes and missing <= free:
        yield Advice(
            text=f"pass fused=True (or foreach=False) to {optimizer.name}: it then needs no temporary copies of all "
            "parameters in its step, and computes the same.",
            gain_bytes=optimizer.temporary_bytes,
        )
    if state:
        yield Advice(
            text=f"use an optimizer with less state than {optimizer.name}: torch.optim.Adafactor (from torch 2.5 on) "
            "keeps almost none; an 8-bit one (bitsandbytes) keeps a quarter and saves "
            f"{format_bytes(0.75 * state)}.",
            gain_bytes=round(0.95 * state),
        )
    yield Advice(
        text="train fewer parameters (freeze layers, LoRA), or shard parameters and state over several devices (FSDP).",
        gain_bytes=round(0.5 * state),
    )


def _against_length(scene: Scene, verdict: Verdict) -> Iterator[Advice]:
    spike, largest = verdict.spike, fit(scene)
    if spike is None or largest is None or (spike.axis == 0 and share_first(scene)):  # said as a batch size
        return
    limit = int(largest.elements / spike.elements * spike.shape[spike.axis])
    if limit >= spike.shape[spike.axis]:
        return
    shape = [limit if axis == spike.axis else length for axis, length in enumerate(spike.shape)]
    saved = round(largest.bytes_per_batch * (1 - limit / max(spike.shape[spike.axis], 1)))
    yield Advice(
        text=f"limit the input to {shape} (dimension {spike.axis}: {limit} instead of {spike.shape[spike.axis]}): by "
        "this run's own slope that would have fitted. Cut or drop longer ones, or batch by number of elements.",
        gain_bytes=saved,
        value=limit,
    )


def _smaller(scene: Scene) -> Iterator[Advice]:
    """Ways to need less, where nothing is wrong but the size."""
    objects, shape, largest = scene.objects, batch_shape(scene), fit(scene)
    activations = objects.owners.get("activations", 0)
    request, site = scene.request, _at(objects.site)
    requested = request.requested_bytes or 0
    if requested > (request.limit_bytes or requested):
        if is_segment(requested):
            yield Advice(text=f"take a device of {format_bytes(requested)} at the very least.")
            return
        yield Advice(
            text=f"look at the shape that is asked for{site}: an outer product, a broadcast or a one-hot in full size "
            "is often meant to be smaller, or can be computed in parts."
        )
    shrinks = largest is not None and largest.bytes_per_batch >= request.shortage_bytes
    if shape is not None and largest is not None and shrinks and 1 <= largest.batch < shape[0] and share_first(scene):
        steps = math.ceil(shape[0] / largest.batch)
        yield Advice(
            text=f"make the batch {largest.batch} instead of {shape[0]}: by this run's own numbers the largest that "
            f"would have fitted. For the same effective batch, accumulate gradients over {steps} batches of "
            f"{'at most ' if shape[0] % steps else ''}{math.ceil(shape[0] / steps)}.",
            gain_bytes=round(largest.bytes_per_batch * (1 - largest.batch / shape[0])),
            value=largest.batch,
        )
    if objects.float32_activation_bytes > 0.2 * max(scene.request.allocated_bytes or 0, 1):
        yield Advice(
            text="run the forward under torch.autocast with bfloat16: activations take half.",
            gain_bytes=objects.float32_activation_bytes // 2,
        )
    if objects.layers >= 9 and activations:
        saved = round(activations * (1 - 2 / math.sqrt(objects.layers)))
        yield Advice(
            text="checkpoint activations (torch.utils.checkpoint) in the repeated blocks: they are computed again in "
            "the backward instead of kept, for about a third more time.",
            gain_bytes=saved,
        )
    state = sum(optimizer.full_state_bytes or optimizer.state_bytes for optimizer in objects.optimizers)
    if state > 0.2 * max(scene.request.allocated_bytes or 0, 1):
        yield Advice(
            text="use an optimizer with less state: an 8-bit one (bitsandbytes) keeps a quarter.",
            gain_bytes=round(0.75 * state),
        )


def _at(place: Place) -> str:
    if place.file is None:
        return ""
    return f" at {place_text(place.file, place.line)}"
