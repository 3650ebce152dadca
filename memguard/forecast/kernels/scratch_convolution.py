"""What CUDA's convolutions take beside their outputs, and in which layout they answer. From Convolution.cpp."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memguard.forecast.kernels.convolution_workspaces import (
    CAPABILITY,
    Convolution,
    likely_bytes,
    most_bytes,
    tf32_is_slow,
)
from memguard.forecast.kernels.scratch_parts import contiguous_copy, take_reduction
from memguard.forecast.trace import Kind

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer

_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def convolution_layout(tensor: Tensor, weight: Tensor) -> torch.memory_format:
    """Channels last if the input or the weight is (C++: ``cudnn_conv_suggest_memory_format``)."""
    last = _LAST.get(weight.dim())
    if last is not None and torch.backends.cudnn.enabled:
        for value in (tensor, weight):
            if value.dim() == weight.dim() and value.is_contiguous(memory_format=last) and not value.is_contiguous():
                return last
    return torch.contiguous_format


def convolution_kernel(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A convolution whose output has the layout that cuDNN would give it."""
    return func(*args, **kwargs).contiguous(memory_format=convolution_layout(args[0], args[1]))


def convolution_backward_kernel(
    tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The gradients, those of input and weight in the layout that cuDNN would give them."""
    layout = convolution_layout(args[1], args[2])
    for_input, for_weight, for_bias = func(*args, **kwargs)
    return (
        for_input.contiguous(memory_format=layout) if for_input is not None else None,
        for_weight.contiguous(memory_format=layout) if for_weight is not None else None,
        for_bias,
    )


def convolution(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Input and weight made contiguous, and a workspace that cuDNN chooses."""
    tensor, weight = args[:2]
    layout = convolution_layout(tensor, weight)
    copied = contiguous_copy(tracer, site, tensor, layout)
    tracer.outputs(out, site)
    weighted = contiguous_copy(tracer, site, weight, layout)
    call = Convolution(
        makes="output",
        tensor=tensor,
        weight=weight,
        output=out,
        stride=tuple(args[3]),
        groups=args[8],
        transposed=args[6],
        channels_last=layout != torch.contiguous_format,
    )
    _workspace(tracer, site, call)
    weighted()
    copied()


def convolution_backward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """As the forward, for each gradient; PyTorch's own depthwise kernel makes the weight's first."""
    gradient, tensor, weight = args[:3]
    layout = convolution_layout(tensor, weight)
    for_input, for_weight, for_bias = out
    groups = args[9]
    depthwise = groups > 1 and groups == tensor.shape[1] and layout == torch.contiguous_format
    copies = [contiguous_copy(tracer, site, value, layout) for value in (tensor, gradient)]
    call = Convolution(
        makes="input",
        tensor=tensor,
        weight=weight,
        output=gradient,
        stride=tuple(args[4]),
        groups=groups,
        transposed=args[7],
        channels_last=layout != torch.contiguous_format,
    )
    if depthwise:
        tracer.outputs((for_weight, for_input), site)
    else:
        if for_input is not None:
            tracer.outputs(for_input, site)
            weighted = contiguous_copy(tracer, site, weight, layout)
            _workspace(tracer, site, call)
            weighted()
        if for_weight is not None:
            tracer.outputs(for_weight, site)
            _workspace(tracer, site, replace(call, makes="weight"))
    for copied in reversed(copies):
        copied()
    if for_bias is not None:
        tracer.outputs(for_bias, site)
        take_reduction(tracer, site, gradient, [d for d in range(gradient.dim()) if d != 1])


def _workspace(tracer: Tracer, site: int, call: Convolution) -> None:
    """What the call probably takes, if the GPU's cuDNN takes any, what it takes by the other rules, and at most."""
    setting = tracer.setting
    slow = tf32_is_slow(setting.compute_capability)
    likely, other = (
        likely_bytes(call, setting.multiprocessors, slow_tf32=rules) if torch.backends.cudnn.enabled else 0
        for rules in (slow, not slow)
    )
    if setting.cudnn_workspaces and setting.compute_capability >= CAPABILITY:
        for kind, nbytes in ((Kind.WORKSPACE, likely), (Kind.OTHER_WORKSPACE, other)):
            if nbytes:
                tracer.library_call(kind, site, nbytes)
    tracer.library_call(Kind.CONVOLUTION, site, max(likely, other, most_bytes(call)))
