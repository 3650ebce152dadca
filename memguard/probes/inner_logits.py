"""Wide logits inside a model that answers with its loss alone: seen in the loss's graph, found in the source."""

from __future__ import annotations

from types import FunctionType
from typing import Any, NamedTuple

from torch import nn

from memguard.facts import NOWHERE, Place
from memguard.probes.ledger import tensors_in
from memguard.probes.sizes import saved_tensors, walk
from memguard.probes.syntax import Sources
from memguard.probes.upcasts import first_cast

NEAR = 64
"""Nodes up from a loss among which its log-softmax stands, and from that one the cast of its input."""


_LOSSES = frozenset({"LogSoftmaxBackward0", "LogsumexpBackward0"})


class InnerLogits(NamedTuple):
    """What a loss took the log-softmax of, or the logarithm of the sum."""

    numel: int
    width: int
    was_cast: bool
    """Whether a tensor of lower precision was copied to float32 for it."""


def inner_logits(output: object, min_width: int) -> InnerLogits | None:
    """The logits behind a loss that a model answered with; None where the answer is no loss, or they are narrow.

    Args:
        output: The model's answer.
        min_width: The least number of classes.
    """
    for tensor in tensors_in(output, 2):
        if tensor.dim() or tensor.grad_fn is None:
            continue
        for node in walk(tensor.grad_fn, NEAR):
            if type(node).__name__ not in _LOSSES:
                continue
            for saved in saved_tensors(node):
                if saved.dim() >= 2 and saved.shape[-1] >= min_width:
                    return InnerLogits(saved.numel(), int(saved.shape[-1]), is_cast(node))
    return None


def is_cast(node: Any) -> bool:
    """Whether a cast stands in a graph, a few nodes above one."""
    return any(type(above).__name__ == "ToCopyBackward0" for above in walk(node, NEAR))


def cast_in(model: nn.Module) -> Place:
    """The line of a model's forward that casts its logits or takes their loss; the forward's own without one."""
    forward = getattr(type(model), "forward", None)
    if type(forward) is not FunctionType:
        return NOWHERE
    code = forward.__code__
    source = Sources().get(code.co_filename)
    function = source.function_at(code.co_firstlineno, code.co_name) if source is not None else None
    if source is None or function is None:
        return Place(file=code.co_filename, line=code.co_firstlineno, function=code.co_name)
    line = first_cast(function) or function.first_line
    return Place(file=code.co_filename, line=line, function=function.path, source=source.text(line, line))
