"""Memory that CUDA kernels take beside their outputs, operator by operator, in the order in which they take it.

Found by comparing traces with the real allocator's history, torch 2.15.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memguard.forecast.indexing import embedding_backward_plan, index_put_plan
from memguard.forecast.reduction import reduction_scratch
from memguard.forecast.trace import Kind

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer

Scratch = Callable[["Tracer", int, tuple[Any, ...], dict[str, Any], Any], None]
"""Records an operator's outputs and what it took meanwhile: tracer, site, arguments, keyword arguments, outputs."""

_aten = torch.ops.aten


def _gemm(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    tracer.outputs(out, site)
    tracer.library_call(Kind.GEMM, site)


def _addmm(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    tracer.outputs(out, site)
    bias, left, right = args[:3]
    fused = (
        bias.dim() == 1
        and bias.is_contiguous()
        and not kwargs
        and left.shape[1] > 1
        and right.shape[1] == bias.shape[0]
    )
    tracer.library_call(Kind.EPILOGUE_GEMM if fused else Kind.GEMM, site)


def _contiguous_copy(tracer: Tracer, site: int, tensor: Tensor) -> Callable[[], None]:
    """The copy that a kernel makes of an input that is not contiguous; the function returned gives it back."""
    if tensor.is_contiguous():
        return _nothing
    return tracer.hold(site, tensor.numel() * tensor.element_size())


def _nothing() -> None:
    return None


def _layer_norm(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    copied = _contiguous_copy(tracer, site, args[0])
    tracer.outputs(out, site)
    copied()


def _layer_norm_backward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    copies = [_contiguous_copy(tracer, site, tensor) for tensor in args[:2]]
    tracer.outputs(out, site)
    for copied in reversed(copies):
        copied()


def _group_norm(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """A scale and a shift for every channel of every sample."""
    tracer.outputs(out, site)
    channels = args[3] * args[4] * 4
    tracer.take(site, channels, channels)


def _group_norm_backward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    tracer.outputs(out, site)
    samples, channels, groups = args[5], args[6], args[8]
    by_channel, by_group = samples * channels * 4, samples * groups * 4
    tracer.take(site, by_channel, by_channel, by_channel, by_group, by_group)


def _lstm_cell(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    state, cell, workspace = out
    tracer.outputs((workspace, state, cell), site)


def _mask_first(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Dropout makes its mask before its output."""
    tracer.outputs(out[1], site)
    tracer.outputs(out[0], site)


def _reduction(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    tracer.outputs(out, site)
    tensor = args[0]
    if not tensor.numel():
        return
    dims = args[1] if len(args) > 1 else kwargs.get("dim")
    if isinstance(dims, int):
        dims = [dims]
    if isinstance(dims, float) or not dims:  # the order of a norm, or everything
        dims = range(tensor.dim())
    take_reduction(tracer, site, tensor, [d % tensor.dim() for d in dims] if tensor.dim() else [])


def _norm(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    tensor = args[0]
    dims = args[2] if len(args) > 2 else None
    tracer.outputs(out, site)
    take_reduction(tracer, site, tensor, [d % tensor.dim() for d in dims] if dims else range(tensor.dim()))


def take_reduction(tracer: Tracer, site: int, tensor: Tensor, dims: Any, accumulator_bytes: int = 4) -> None:
    """The scratch of a reduction of `tensor` over `dims`, taken and given back."""
    wide = tensor.dtype in (torch.float64, torch.int64)
    buffer, semaphores = reduction_scratch(
        tensor.shape,
        tensor.stride(),
        list(dims),
        itemsize=tensor.element_size(),
        accumulator_bytes=8 if wide else accumulator_bytes,
        multiprocessors=tracer.setting.multiprocessors,
        threads_per_multiprocessor=tracer.setting.threads_per_multiprocessor,
    )
    if buffer:
        tracer.take(site, buffer, semaphores)


def _efficient_forward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    query, value = args[0], args[2]
    dropout = args[5] if len(args) > 5 else kwargs.get("dropout_p", 0.0)
    result, logsumexp, seed, offset = out
    if not dropout:
        tracer.outputs((seed, offset), site)
    else:
        tracer.ignore((seed, offset))  # they stay on the host
    tracer.outputs((result, logsumexp), site)
    if query.element_size() == 2 and value.shape[-1] > 128:
        tracer.take(site, result.numel() * 4)


def _efficient_backward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    gradient, query = args[:2]
    batch, heads, length, width = query.shape
    ordered = gradient.transpose(1, 2).is_contiguous()
    copied = None if ordered else tracer.hold(site, gradient.numel() * gradient.element_size())
    tracer.outputs(out, site)
    rows = batch * heads * length * 4
    if query.dtype == torch.float32:
        product, total, delta = tracer.hold(site, query.numel() * 4), tracer.hold(site, rows), tracer.hold(site, rows)
        total()
        product()
    else:
        delta = tracer.hold(site, rows)
    tile = 64 if width <= 64 else 128
    blocks = -(-length // tile) * -(-width // tile)
    workspace = tracer.hold(site, batch * heads * blocks * (tile * tile + 4) * 4)
    delta()
    workspace()
    if copied is not None:
        copied()


def _flash_forward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    query, key = args[0], args[1]
    dropout = args[3] if len(args) > 3 else kwargs.get("dropout_p", 0.0)
    batch, heads, length, width = query.shape
    tracer.outputs(out[:2], site)
    splits = 1 if dropout else _flash_splits(tracer, batch * heads, length, key.shape[2], width)
    give_back = []
    if splits > 1:
        rows = splits * batch * heads * length * 4
        give_back = [tracer.hold(site, rows), tracer.hold(site, rows * _round(width, 32 if width <= 128 else 64))]
    tracer.outputs(out[2:], site)
    if dropout:
        tracer.take(site, 16)
    for release in give_back:
        release()


def _flash_splits(tracer: Tracer, batch_heads: int, queries: int, keys: int, width: int) -> int:
    """Into how many parts the keys are split to occupy the GPU (C++: ``num_splits_heuristic``)."""
    block = 256 if width <= 64 else 128 if width <= 128 else 64
    blocks_n, work = -(-keys // block), batch_heads * -(-queries // 64)
    processors = tracer.setting.multiprocessors * 2
    if work >= 0.8 * processors:
        return 1
    most = min(128, processors, blocks_n)
    best, efficiencies = 0.0, []
    for splits in range(1, most + 1):
        eligible = splits == 1 or -(-blocks_n // splits) != -(-blocks_n // (splits - 1))
        waves = work * splits / processors
        efficiency = waves / -(-work * splits // processors) if eligible else 0.0
        best = max(best, efficiency)
        efficiencies.append((eligible, efficiency))
    for splits, (eligible, efficiency) in enumerate(efficiencies, 1):
        if eligible and efficiency >= 0.85 * best:
            return splits
    return 1


def _flash_backward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    gradient, query, result = args[0], args[1], args[4]
    batch, heads, length, width = query.shape
    copies = [
        tracer.hold(site, tensor.numel() * tensor.element_size())
        for tensor in (gradient, result)
        if not tensor.transpose(1, 2).is_contiguous()
    ]
    tracer.outputs(out, site)
    rows = batch * heads * _round(length, 128) * 4
    accumulator = rows * _round(width, 32 if width <= 128 else 64)
    softmax_d = tracer.hold(site, rows)
    dq = tracer.hold(site, accumulator)
    dq()
    softmax_d()
    for release in reversed(copies):
        release()


def _softmax_backward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """The product of gradient and output stands beside the result."""
    tracer.outputs(out, site)
    tracer.take(site, out.numel() * max(args[0].element_size(), args[1].element_size()))


def _embedding_backward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    gradient, indices = args[:2]
    copied = _contiguous_copy(tracer, site, gradient)
    plan = embedding_backward_plan(indices.numel(), out.shape[0], out.shape[1], out.element_size())
    tracer.play(site, plan, out)
    copied()


def _index_put(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    tracer.outputs(out, site)
    target, indices = args[:2]
    accumulate = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    if not accumulate:
        return
    used = [index for index in indices if index is not None]
    count = max((index.numel() for index in used), default=0)
    rows = 1
    for dim, index in enumerate(indices):
        rows *= target.shape[dim] if index is not None else 1
    tracer.play(site, index_put_plan(count, rows))


def _safe_softmax(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Rows that are masked throughout become zero: a mask of elements, one of rows, and the zero."""
    tracer.outputs(out, site)
    rows = out.numel() // max(out.shape[args[1]], 1)
    tracer.take(site, out.numel(), rows, out.element_size())


def _round(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def _convolution_backward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    gradient, tensor, weight = args[:3]
    last = any(
        t.dim() == 4 and t.is_contiguous(memory_format=torch.channels_last) and not t.is_contiguous()
        for t in (tensor, weight)
    )
    layout = torch.channels_last if last and gradient.dim() == 4 else torch.contiguous_format
    copied = None
    if not gradient.is_contiguous(memory_format=layout):
        copied = tracer.hold(site, gradient.numel() * gradient.element_size())
    for_input, for_weight, for_bias = out
    groups = args[9]
    depthwise = groups > 1 and groups == tensor.shape[1] and layout == torch.contiguous_format
    results = (for_weight, for_input) if depthwise else (for_input, for_weight)
    _convolution(tracer, site, args, kwargs, tuple(result for result in results if result is not None))
    if copied is not None:
        copied()
    if for_bias is not None:
        tracer.outputs(for_bias, site)
        take_reduction(tracer, site, gradient, [d for d in range(gradient.dim()) if d != 1])


def _convolution(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    tracer.outputs(out, site)
    tensors = [
        value for value in (*args[:3], *(out if isinstance(out, tuple) else (out,))) if isinstance(value, Tensor)
    ]
    tracer.library_call(Kind.CONVOLUTION, site, sum(tensor.numel() * tensor.element_size() for tensor in tensors))


_SCRATCH: dict[Any, Scratch] = {
    _aten.native_dropout.default: _mask_first,
    _aten._thnn_fused_lstm_cell.default: _lstm_cell,
    _aten.native_layer_norm.default: _layer_norm,
    _aten.native_layer_norm_backward.default: _layer_norm_backward,
    _aten.native_group_norm.default: _group_norm,
    _aten.native_group_norm_backward.default: _group_norm_backward,
    _aten.mm.default: _gemm,
    _aten.bmm.default: _gemm,
    _aten.baddbmm.default: _gemm,
    _aten.addmm.default: _addmm,
    _aten.sum.default: _reduction,
    _aten.sum.dim_IntList: _reduction,
    _aten.mean.default: _reduction,
    _aten.mean.dim: _reduction,
    _aten.amax.default: _reduction,
    _aten.amin.default: _reduction,
    _aten.linalg_vector_norm.default: _norm,
    _aten._scaled_dot_product_efficient_attention.default: _efficient_forward,
    _aten._scaled_dot_product_efficient_attention_backward.default: _efficient_backward,
    _aten._scaled_dot_product_flash_attention.default: _flash_forward,
    _aten._scaled_dot_product_flash_attention_backward.default: _flash_backward,
    _aten._softmax_backward_data.default: _softmax_backward,
    _aten.embedding_dense_backward.default: _embedding_backward,
    _aten.index_put_.default: _index_put,
    _aten._index_put_impl_.default: _index_put,
    _aten._safe_softmax.default: _safe_softmax,
    _aten.convolution.default: _convolution,
    _aten.convolution_backward.default: _convolution_backward,
}


def scratch_of(func: Any) -> Scratch | None:
    """How the operator's CUDA kernel takes memory, or None if its outputs are all."""
    return _SCRATCH.get(func)
