"""Operators that fake tensors run otherwise than CUDA would: attention, values that a step reads, empty answers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from memguard.forecast.kernels.recurrent import pack_kernel
from memguard.forecast.kernels.scratch_convolution import convolution_backward_kernel, convolution_kernel
from memguard.forecast.kernels.scratch_norms import group_norm_backward_kernel, group_norm_kernel
from memguard.forecast.kernels.scratch_products import grouped_mm_kernel

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer

Kernel = Callable[["Tracer", int, Any, tuple[Any, ...], dict[str, Any]], Any]
"""Runs an operator: tracer, site, operator, arguments, keyword arguments."""

aten: Any = torch.ops.aten


def _item(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor = args[0]
    constant = getattr(tensor, "constant", None)
    if constant is not None:
        with torch._C._DisableTorchDispatch():
            return constant.item()
    tracer.note_value(site, tensor.dtype)
    if tensor.dtype == torch.bool:
        return False
    return 0.0 if tensor.dtype.is_floating_point else 0


def _nonzero(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor = args[0]
    tracer.note("the step selects by value (nonzero, a boolean mask): counted as if every element were selected")
    return torch.empty((tensor.numel(), tensor.dim()), dtype=torch.int64, device=tensor.device)


def _masked_select(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tracer.note("the step selects by value (masked_select): counted as if every element were selected")
    shape = torch.broadcast_shapes(args[0].shape, args[1].shape)
    return args[0].new_empty((math.prod(shape),))


def _unique(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tracer.note("the step looks for unique values: counted as if all were different")
    tensor = args[0]
    numbers = torch.empty(tensor.shape, dtype=torch.int64, device=tensor.device)
    return tensor.new_empty((tensor.numel(),)), numbers, numbers.new_empty((tensor.numel(),))


def _bincount(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    given = args[2] if len(args) > 2 else kwargs.get("minlength", 0)
    tracer.note("the step counts values (bincount): the largest value is taken to be minlength - 1")
    weights = args[1] if len(args) > 1 else kwargs.get("weights")
    dtype = torch.int64 if weights is None else torch.float64 if weights.dtype != torch.float32 else torch.float32
    return torch.empty((max(given, 1),), dtype=dtype, device=args[0].device)


def _pinned(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A copy on the host, whose pages stay: none of the GPU's memory."""
    return torch.empty_like(args[0])


def _equal(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tracer.note_value(site, torch.bool)
    return False


def _gru_cell(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    state = args[2]
    return torch.empty_like(state), state.new_empty((state.shape[0], 5 * state.shape[1]))


def _gru_cell_backward(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    gradient, workspace, has_bias = args
    rows, gates = workspace.shape[0], 3 * (workspace.shape[1] // 5)
    biases = [workspace.new_empty((gates,)) if has_bias else None for _ in range(2)]
    return (
        workspace.new_empty((rows, gates)),
        workspace.new_empty((rows, gates)),
        torch.empty_like(gradient),
        *biases,
    )


def _efficient_backward(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The fake kernel knows no groups of heads."""
    for_query, for_key, for_value, for_mask = func(*args, **kwargs)
    key, value = args[2:4]
    if key.shape[1] != for_key.shape[1]:
        for_key, for_value = (given.transpose(1, 2).contiguous().transpose(1, 2) for given in (key, value))
    return for_query, for_key, for_value, for_mask


def _updated(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A fused optimizer step that PyTorch gives no fake kernel: it changes its arguments and takes nothing."""


def _no(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return False


def _ctc_loss(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    log_probabilities, targets, _, target_lengths = args[:4]
    steps, samples = log_probabilities.shape[:2]
    if targets.dim() == 2:
        longest = targets.shape[1]
    elif isinstance(target_lengths, torch.Tensor):
        longest = -(-targets.numel() // max(samples, 1))
    else:
        longest = max(target_lengths, default=0)
    return (
        log_probabilities.new_empty((samples,)),
        log_probabilities.new_empty((samples, steps, 2 * longest + 1)),
    )


def _ctc_loss_backward(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return torch.empty_like(args[1])


def _like_input(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The gradient of a loss that PyTorch gives no fake kernel."""
    return torch.empty_like(args[1])


def _as_it_is(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    with _disable_current_modes():
        return func(*args, **kwargs)


KERNELS: dict[Any, Kernel] = {
    aten._pack_padded_sequence.default: pack_kernel,
    aten.multi_margin_loss_backward.default: _like_input,
    aten.multilabel_margin_loss_backward.default: _like_input,
    aten._local_scalar_dense.default: _item,
    aten._pin_memory.default: _pinned,
    aten.nonzero.default: _nonzero,
    aten.masked_select.default: _masked_select,
    aten._unique2.default: _unique,
    aten.bincount.default: _bincount,
    aten.equal.default: _equal,
    aten._thnn_fused_gru_cell.default: _gru_cell,
    aten._thnn_fused_gru_cell_backward.default: _gru_cell_backward,
    aten._ctc_loss.default: _ctc_loss,
    aten._ctc_loss.Tensor: _ctc_loss,
    aten._ctc_loss_backward.default: _ctc_loss_backward,
    aten._ctc_loss_backward.Tensor: _ctc_loss_backward,
    aten._scaled_dot_product_efficient_attention_backward.default: _efficient_backward,
    aten.native_group_norm.default: group_norm_kernel,
    aten.native_group_norm_backward.default: group_norm_backward_kernel,
    aten.convolution.default: convolution_kernel,
    aten.convolution_backward.default: convolution_backward_kernel,
}
KERNELS.update(
    (getattr(packet, overload), _no)
    for name in ("_use_cudnn_ctc_loss", "_use_miopen_ctc_loss")
    if (packet := getattr(aten, name, None)) is not None
    for overload in packet.overloads()
)
KERNELS.update(
    (getattr(packet, overload), _updated)
    for name in ("_fused_sgd_", "_fused_adagrad_")
    if (packet := getattr(aten, name, None)) is not None
    for overload in packet.overloads()
)
KERNELS.update(
    (getattr(packet, overload), _as_it_is)
    for name in ("_record_function_enter_new", "_record_function_exit")
    if (packet := getattr(torch.ops.profiler, name, None)) is not None
    for overload in packet.overloads()
)
if hasattr(aten, "_grouped_mm"):
    KERNELS[aten._grouped_mm.default] = grouped_mm_kernel
