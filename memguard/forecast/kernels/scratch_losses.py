"""What losses and recurrent cells take, in the order in which they take it.

Losses that PyTorch implements as one operator make the loss of every element before its mean. Some keep its memory
under the scalar that they return. Found by comparing traces with the real allocator's history, torch 2.15.0; from
Loss.cpp and Loss.cu.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memguard.forecast.kernels.scratch_parts import nbytes_of, take_reduction

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer


def resized_loss(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """mse_loss, smooth_l1_loss: the scalar lies in memory made for the loss of every element."""
    if out.dim() or not _reduces(args, kwargs, 2):
        tracer.outputs(out, site)
        return
    elements = _elements(args[0], args[1])
    tracer.larger(out, site, nbytes_of(elements))
    each = tracer.hold(site, nbytes_of(elements))
    _mean(tracer, site, elements)
    each()


def averaged_loss(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """huber_loss: the loss of every element, then its mean."""
    if out.dim() or not _reduces(args, kwargs, 2):
        tracer.outputs(out, site)
        return
    elements = _elements(args[0], args[1])
    each = tracer.hold(site, nbytes_of(elements))
    tracer.outputs(out, site)
    _mean(tracer, site, elements)
    each()


def probability_loss(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """binary_cross_entropy: the loss of every element, whose memory the scalar takes over."""
    if out.dim() or not _reduces(args, kwargs, 3):
        tracer.outputs(out, site)
        return
    elements = _elements(args[0], args[1])
    tracer.larger(out, site, nbytes_of(elements))
    mean = tracer.hold(site, elements.element_size())
    _mean(tracer, site, elements)
    mean()


def soft_margin_loss(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """As `probability_loss`, without weights."""
    if out.dim() or not _reduces(args, kwargs, 2):
        tracer.outputs(out, site)
        return
    tracer.larger(out, site, nbytes_of(args[0]))
    mean = tracer.hold(site, args[0].element_size())
    _mean(tracer, site, _elements(args[0], args[1]))
    mean()


def soft_margin_loss_backward(
    tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any
) -> None:
    """The negative target, its product with the input, and the exponential of that."""
    size = nbytes_of(args[1])
    held = [tracer.hold(site, size) for _ in range(3)]
    held[0]()
    held[1]()
    tracer.outputs(out, site)
    held[2]()


def logit_loss(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """binary_cross_entropy_with_logits: log-sigmoid, weights of the positives, and the loss of every element."""
    logits, target = args[:2]
    positive = args[3] if len(args) > 3 else kwargs.get("pos_weight")
    elements = _elements(logits, target)
    log_sigmoid = tracer.hold(site, nbytes_of(logits))
    if positive is not None:
        less = tracer.hold(site, nbytes_of(positive))
        weights = tracer.hold(site, nbytes_of(_elements(positive, target)))
        less()
        weights()
    if out.dim() or not _reduces(args, kwargs, 4):
        tracer.outputs(out, site)
        log_sigmoid()
        return
    each = tracer.hold(site, nbytes_of(elements))
    tracer.outputs(out, site)
    _mean(tracer, site, elements)
    each()
    log_sigmoid()


def _reduces(args: tuple[Any, ...], kwargs: dict[str, Any], position: int) -> bool:
    """Whether the loss is a mean or a sum: reduction 0 is none."""
    return bool(args[position] if len(args) > position else kwargs.get("reduction", 1))


def _elements(left: Tensor, right: Tensor) -> Tensor:
    """A tensor as large as the loss of every element; it has no memory."""
    shape = torch.broadcast_shapes(left.shape, right.shape)
    return torch.empty(shape, dtype=torch.promote_types(left.dtype, right.dtype), device="meta")


def _mean(tracer: Tracer, site: int, elements: Tensor) -> None:
    take_reduction(tracer, site, elements, range(elements.dim()))


def lstm_cell(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Its workspace before its states."""
    state, cell, workspace = out
    tracer.outputs((workspace, state, cell), site)


def gru_cell(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Its workspace before its state."""
    state, workspace = out
    tracer.outputs((workspace, state), site)


def gru_cell_backward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Gradients of gates and state, then those of the biases, each a sum."""
    tracer.outputs(out[:3], site)
    for bias, gates in zip(out[3:], out[:2], strict=True):
        if bias is not None:
            tracer.outputs(bias, site)
            take_reduction(tracer, site, gates, [0])


def ctc_loss(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """The lengths and offsets of the sequences go to the GPU."""
    tracer.outputs(out, site)
    tracer.take(site, *[8 * out[0].numel()] * 3)


def ctc_loss_backward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """The backward variables are as large as the forward ones."""
    tracer.outputs(out, site)
    tracer.take(site, nbytes_of(args[6]), *[8 * args[5].numel()] * 3)
