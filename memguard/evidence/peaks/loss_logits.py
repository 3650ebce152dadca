"""Wide logits inside a loss, and the casts of them: in its graph, in the source and in the allocation history."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import nn

from memguard.autograd.graph import iter_nodes, saved_tensors
from memguard.heap.containers import tensors_in
from memguard.heap.frames import is_user_file, place_of, user_frames
from memguard.records.facts import NOWHERE, Place
from memguard.source.model import Sources
from memguard.source.upcasts import cast_name, find_loss

if TYPE_CHECKING:
    from memguard.allocator.snapshot import Stack
    from memguard.allocator.timeline import AllocationTimeline

NEAR = 64
"""Nodes up from a loss among which its log-softmax stands, and from that one the cast of its input."""
MOST_FRAMES = 4
"""Functions of the user's, from the one that calls for a backward outwards, in which the loss is looked for."""

_PRODUCTS = ("Mm", "Addmm", "Bmm", "Baddbmm", "Mv", "Addmv", "Linear", "Convolution", "MkldnnLinear")
_LOSSES = frozenset({"LogSoftmaxBackward0", "LogsumexpBackward0"})


class InnerLogits(NamedTuple):
    """What a loss took the log-softmax of, or the logarithm of the sum."""

    numel: int
    width: int
    was_cast: bool
    """Whether a tensor of lower precision was copied to float32 for it."""


def inner_logits(output: object, min_width: int) -> InnerLogits | None:
    """The logits behind a loss that a model answered with; None where the answer is no loss, or they are narrow."""
    for tensor in tensors_in(output, 2):
        if tensor.dim() or tensor.grad_fn is None:
            continue
        for node in iter_nodes((tensor.grad_fn,), NEAR):
            if type(node).__name__ not in _LOSSES:
                continue
            dim = _dim_of(node)
            for saved in saved_tensors(node):
                if saved.dim() >= 2 and -saved.dim() <= dim < saved.dim() and saved.shape[dim] >= min_width:
                    return InnerLogits(saved.numel(), int(saved.shape[dim]), _is_cast_before_head(node))
    return None


def _dim_of(node: Any) -> int:
    """The dimension of the classes: not the last one in ``cross_entropy(logits.transpose(1, 2), labels)``."""
    dim = getattr(node, "_saved_dim", None)
    if type(dim) is not int:
        return -1
    return dim - 2**64 if dim >= 2**63 else dim  # shown as if it had no sign; checked in torch 2.13


def _is_cast_before_head(node: Any) -> bool:
    """Whether a cast stands between a loss and the product of matrices that made its logits."""
    above = iter_nodes((node,), NEAR, ends=lambda node: type(node).__name__.startswith(_PRODUCTS))
    return any(type(one).__name__ == "ToCopyBackward0" for one in above if one is not node)


def is_cast(node: Any) -> bool:
    """Whether a cast stands in a graph, a few nodes above one."""
    return any(type(above).__name__ == "ToCopyBackward0" for above in iter_nodes((node,), NEAR))


def cast_in(model: nn.Module, method: str = "forward") -> Place:
    """The line of a model's method that casts its logits or takes their loss; the method's own without one."""
    forward = getattr(type(model), method, None)
    if type(forward) is not FunctionType:
        return NOWHERE
    code = forward.__code__
    source = Sources().get(code.co_filename)
    function = source.scope_of(code.co_firstlineno, code.co_name)
    if function is None:
        return Place(file=code.co_filename, line=code.co_firstlineno, function=code.co_name)
    found = find_loss(source, function)
    line, path = found if found is not None else (function.first_line, function.path)
    return Place(file=code.co_filename, line=line, function=path, source=source.text(line, line))


def cast_before(models: Iterable[nn.Module], *, lightning: bool) -> Place:
    """The line that casts logits or takes their loss, in the functions that run now or in the step of a Trainer's.

    Args:
        models: The watched models.
        lightning: Whether Lightning calls for the backward: then the step has answered and runs no more.
    """
    if lightning:
        places = (cast_in(model, "training_step") for model in models)
        return next((place for place in places if place.file is not None and is_user_file(place.file)), NOWHERE)
    asking = NOWHERE
    for frame in islice(user_frames(sys._getframe(1)), MOST_FRAMES):
        place = place_of(frame)
        asking = place if asking.file is None else asking
        source = Sources().get(frame.f_code.co_filename)
        found = find_loss(source, source.scope_at(frame.f_lineno), frame.f_lineno)
        if found is not None:
            return replace(place, line=found[0], function=found[1], source=source.text(found[0], found[0]))
    return asking


_TORCH: Final = str(Path(torch.__file__).parent)
LEAST, MOST = 0.75, 1.05
"""Share of the logits' size that a copy of them has: short of a token in each sequence, rounded up."""
SLICES = 8
"""Into so many a loss in chunks is thought to cut the logits: fewer than those of torch and of liger-kernel."""


class Upcast(NamedTuple):
    """The user's line that made the first float32 copy, whether it called the operator itself, bytes at the peak."""

    place: Place | None
    by_user: bool
    bytes: int


def upcast_in(timeline: AllocationTimeline, float32_bytes: int) -> Upcast | None:
    """The first tensor of the logits' size in float32 that is made while one of half its size is alive, and the peak.

    Logits that the model makes in float32, a loss in chunks and one that copies nothing have no such tensor.
    """
    least, most = LEAST * float32_bytes, MOST * float32_bytes
    copies = [block for block in timeline.blocks if least < block.size <= most]
    halves = [block for block in timeline.blocks if least < 2 * block.size <= most]
    first = next((copy for copy in copies if any(half.is_alive(copy.made) for half in halves)), None)
    if first is None:
        return None
    at = timeline.peak().event
    return Upcast(*_line_of(timeline.stack(first.made)), bytes=sum(copy.size for copy in copies if copy.is_alive(at)))


def saved_by_slices(timeline: AllocationTimeline, logits_bytes: int, float32_bytes: int) -> int:
    """How much lower a batch's peak is where all that has the logits' size comes in slices, one after the other."""
    sizes = {logits_bytes, float32_bytes}
    blocks = [b for b in timeline.blocks if any(LEAST * size < b.size <= MOST * size for size in sizes)]
    peak = timeline.peak()
    slices = sum(block.size for block in blocks if block.is_alive(peak.event)) // SLICES
    return max(peak.bytes - timeline.peak({block: block.made for block in blocks}).bytes - slices, 0)


def _line_of(stack: Stack) -> tuple[Place | None, bool]:
    by_user = True
    for file, line, name in stack:
        if file.startswith(_TORCH):
            continue
        if is_user_file(file):
            source = Sources().get(file)
            if not 0 < line <= len(source.lines):
                return Place(file=file, line=line, function=name), by_user
            function, text = source.scope_at(line), source.code(line)
            name_of_copy = cast_name(function, line)
            return Place(file=file, line=line, function=function.path, holder=name_of_copy, source=text), by_user
        by_user = False
    return None, False
