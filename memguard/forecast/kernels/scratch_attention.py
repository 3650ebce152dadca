"""What CUDA's attention kernels take beside their outputs, in the order in which they take it.

Found by comparing traces with the real allocator's history, torch 2.15.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memguard.forecast.trace import Kind

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer

_CUDNN_SINCE = (9, 0)
"""Compute capability from which cuDNN's attention comes first where it is supported."""


def efficient_forward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """The random state first; wide halves are added up in float."""
    query, value = args[0], args[2]
    dropout = args[5] if len(args) > 5 else kwargs.get("dropout_p", 0.0)
    result, logsumexp, seed, offset = out
    if not dropout and tracer.setting.torch_version >= (2, 13):
        tracer.outputs((seed, offset), site)
    else:
        tracer.ignore((seed, offset))  # they stay on the host
    tracer.outputs((result, logsumexp), site)
    if query.element_size() == 2 and value.shape[-1] > 128:
        tracer.take(site, result.numel() * 4)


def efficient_backward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """The product of output and gradient, its sums, and a workspace for the query's gradient."""
    gradient, query = args[:2]
    batch, heads, length = query.shape[:3]
    ordered = gradient.transpose(1, 2).is_contiguous()
    copied = None if ordered else tracer.hold(site, gradient.numel() * gradient.element_size())
    tracer.outputs(out, site)
    rows = batch * heads * length * 4
    key = args[2]
    each = batch * heads * key.shape[2] * key.element_size()
    grouped = key.shape[1] != heads  # gradients for every head, added up afterwards
    by_head = [tracer.hold(site, each * tensor.shape[3]) for tensor in args[2:4]] if grouped else []
    if query.dtype == torch.float32:
        product, total, delta = (
            tracer.hold(site, gradient.numel() * 4),
            tracer.hold(site, rows),
            tracer.hold(site, rows),
        )
        total()
        product()
    else:
        delta = tracer.hold(site, rows)
    workspace = tracer.hold(site, batch * heads * _efficient_workspace(query, args[2]))
    delta()
    workspace()
    for release in by_head:
        release()
    if copied is not None:
        copied()


def _efficient_workspace(query: Tensor, key: Tensor) -> int:
    """Bytes for each head of each sample: the query's gradient in tiles, and wide halves' gradients in float."""
    length, width = query.shape[-2:]
    if width <= 64:
        rows, columns = 64, 64
    elif width <= 128 and query.dtype != torch.float32:
        rows, columns = 128, 128
    else:
        rows, columns = 128, 64
    numbers = -(-length // rows) * -(-width // columns) * (rows * columns + 4)
    if width > 128 and query.dtype != torch.float32:
        numbers += 2 * round_up(key.shape[-2], 64) * round_up(width, 128)
    return 4 * numbers


def flash_forward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Partial outputs where the keys are split to occupy the GPU."""
    query, key = args[0], args[1]
    dropout = args[3] if len(args) > 3 else kwargs.get("dropout_p", 0.0)
    batch, heads, length, width = query.shape
    tracer.outputs(out[:2], site)
    splits = 1 if dropout else _flash_splits(tracer, batch * heads, length, key.shape[2], width)
    give_back = []
    if splits > 1:
        rows = splits * batch * heads * length * 4
        give_back = [tracer.hold(site, rows), tracer.hold(site, rows * round_up(width, 32 if width <= 128 else 64))]
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


def flash_backward(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """Sums and the query's gradient in float; with fewer heads of keys their gradients for every head."""
    gradient, query, result = args[0], args[1], args[4]
    batch, heads, length, width = query.shape
    copies = [
        tracer.hold(site, tensor.numel() * tensor.element_size())
        for tensor in (gradient, result)
        if not tensor.transpose(1, 2).is_contiguous()
    ]
    tracer.outputs(out, site)
    rows = batch * heads * round_up(length, 128) * 4
    accumulator = rows * round_up(width, 32 if width <= 128 else 64)
    softmax_d = tracer.hold(site, rows)
    dq = tracer.hold(site, accumulator)
    if tracer.setting.compute_capability >= _CUDNN_SINCE:
        tracer.library_call(Kind.ATTENTION, site, accumulator)
    key = args[2]
    if key.shape[1] != heads:
        each = batch * heads * key.shape[2] * width * key.element_size()
        for release in [tracer.hold(site, each), tracer.hold(site, each)]:
            release()
    dq()
    softmax_d()
    for release in reversed(copies):
        release()


def round_up(number: int, multiple: int) -> int:
    """The next multiple."""
    return -(-number // multiple) * multiple
