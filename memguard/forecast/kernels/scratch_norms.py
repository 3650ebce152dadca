"""What CUDA's normalisations take beside their outputs, in the order in which they take it.

Found by comparing traces with the real allocator's history, torch 2.15.0; from group_norm_kernel.cu and
Normalization.cu.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memguard.forecast.kernels.scratch_parts import HALVES, contiguous_copy

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer

_ELEMENTS_PER_THREAD, _MAX_BLOCK, _TILE, _MAX_GRID = 16, 512, 32, 128
"""Constants of the channels-last kernels of batch norm."""
_CHANNELS_LAST_GROUP_NORM = (2, 15)
"""Seen in 2.15, not in 2.12."""


def layer_norm(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """The input made contiguous."""
    copied = contiguous_copy(tracer, site, args[0])
    tracer.outputs(out, site)
    copied()


def layer_norm_backward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Gradient and input made contiguous."""
    copies = [contiguous_copy(tracer, site, tensor) for tensor in args[:2]]
    tracer.outputs(out, site)
    for copied in reversed(copies):
        copied()


def group_norm(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """In half precision the statistics in float; with weights a scale and a shift for every channel and sample."""
    tensor, weight, bias, samples, channels, _, groups = args[:7]
    copied = contiguous_copy(tracer, site, tensor, group_layout(tracer, tensor))
    tracer.outputs(out, site)
    statistics = samples * groups * 4 if tensor.dtype in HALVES else 0
    by_channel = samples * channels * 4 if weight is not None or bias is not None else 0
    tracer.take(site, statistics, statistics, by_channel, by_channel)
    copied()


def group_norm_backward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Sums for every channel of every sample, coefficients for every group, and with a weight for every channel."""
    gradient, tensor, _, _, weight, samples, channels, _, groups = args[:9]
    layout = group_layout(tracer, tensor)
    copies = [contiguous_copy(tracer, site, value, layout) for value in (gradient, tensor)]
    tracer.outputs(out, site)
    by_channel, by_group = samples * channels * 4, samples * groups * 4
    scaled = by_channel if weight is not None and layout == torch.contiguous_format else 0
    sums = [tracer.hold(site, by_channel), tracer.hold(site, by_channel)]
    coefficients = [tracer.hold(site, by_group), tracer.hold(site, by_group)]
    scale = tracer.hold(site, scaled) if scaled else None
    for release in coefficients:
        release()
    if scale is not None:
        scale()
    for release in (*sums, *reversed(copies)):
        release()


def group_layout(tracer: Tracer, tensor: Tensor) -> torch.memory_format:
    """Since 2.15 group norm has a kernel for channels last; before it makes everything contiguous."""
    last = _is_channels_last(tensor) and tracer.setting.torch_version >= _CHANNELS_LAST_GROUP_NORM
    return torch.channels_last if last else torch.contiguous_format


def group_norm_kernel(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Group norm whose output has the layout of its input where the kernel knows it."""
    out, mean, scale = func(*args, **kwargs)
    return out.contiguous(memory_format=group_layout(tracer, args[0])), mean, scale


def group_norm_backward_kernel(
    tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Its gradient likewise."""
    for_input, for_weight, for_bias = func(*args, **kwargs)
    if for_input is not None:
        for_input = for_input.contiguous(memory_format=group_layout(tracer, args[1]))
    return for_input, for_weight, for_bias


def batch_norm(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Statistics are saved in training only; PyTorch's own channels-last kernel gathers them through memory."""
    tensor, weight, bias, _, _, training = args[:6]
    if not training:
        tracer.outputs(out[0], site)
        tracer.ignore(out[1:])
        return
    tracer.outputs(out, site)
    if not _by_cudnn(tensor, weight, bias) and _rows_of_channels(tensor):
        _gather(tracer, site, tensor, 4)


def batch_norm_backward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """PyTorch's own channels-last kernel sums first; cuDNN's and the other take their outputs only."""
    tensor, weight, training = args[1], args[2], args[7]
    if not training or _by_cudnn(tensor, weight, weight) or not _rows_of_channels(tensor):
        tracer.outputs(out, site)
        return
    channels = tensor.shape[1] * 4
    sums = [tracer.hold(site, channels), tracer.hold(site, channels)]
    tracer.outputs(out[1:], site)
    _gather(tracer, site, tensor, 2)
    tracer.outputs(out[0], site)
    for release in sums:
        release()


def _by_cudnn(tensor: Tensor, weight: Tensor | None, bias: Tensor | None) -> bool:
    """Whether cuDNN normalises (C++: ``_select_batch_norm_backend``)."""
    return (
        torch.backends.cudnn.enabled
        and weight is not None
        and bias is not None
        and tensor.dim() >= 3
        and tensor.dtype != torch.bfloat16
        and weight.dtype != torch.bfloat16
        and (tensor.dtype != torch.float16 or weight.dtype == torch.float32)
    )


def _is_channels_last(tensor: Tensor) -> bool:
    return tensor.dim() == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last)


def _rows_of_channels(tensor: Tensor) -> bool:
    return _is_channels_last(tensor) or (tensor.is_contiguous() and tensor.stride(1) == 1)


def _gather(tracer: Tracer, site: int, tensor: Tensor, values: int) -> None:
    """Partial sums of thread blocks (C++: ``flexible_launch_configs``), `values` numbers for each channel."""
    channels = tensor.shape[1]
    rows = tensor.numel() // max(channels, 1)
    width = min(_last_power(channels), _TILE)
    height = min(_last_power(-(-rows // _ELEMENTS_PER_THREAD)), _MAX_BLOCK // width)
    if width * height != _MAX_BLOCK:
        width = min(_last_power(channels), _MAX_BLOCK // height)
    columns = -(-channels // width)
    blocks = min(-(-rows // (height * _ELEMENTS_PER_THREAD)), _MAX_GRID)
    if blocks >= 8:
        tracer.take(site, values * channels * blocks * 4, columns * 4)


def _last_power(number: int) -> int:
    return 1 << (max(number, 1).bit_length() - 1)
