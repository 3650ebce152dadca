"""What matrix products take: the workspaces of the libraries, and copies of factors that they could not read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from memguard.forecast.kernels.scratch_parts import nbytes_of
from memguard.forecast.trace import Kind

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer

_GROUP_BYTES = 60
"""Of ``_grouped_mm``: the addresses, strides and size of a group's product."""
_TILE_BYTES = {9: 512, 10: 5376}
"""Of ``_grouped_mm`` by major compute capability: what each multiprocessor has for the descriptions of its tiles."""


def gemm(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """A product through cuBLAS."""
    tracer.outputs(out, site)
    copies = _blas_copies(tracer, site, args)
    tracer.library_call(Kind.GEMM, site)
    for copied in reversed(copies):
        copied()


def _blas_copies(tracer: Tracer, site: int, args: tuple[Any, ...]) -> list[Callable[[], None]]:
    """Factors whose strides cuBLAS does not understand are copied (C++: ``prepare_matrix_for_cublas``)."""
    copies = []
    for factor in args[-2:]:
        if factor.dim() < 2 or factor.is_contiguous():
            continue
        (rows, columns), (down, across) = factor.shape[-2:], factor.stride()[-2:]
        by_rows = (across == 1 or columns == 1) and (down >= max(1, columns) or rows == 1)
        by_columns = (down == 1 or rows == 1) and (across >= max(1, rows) or columns == 1)
        if not by_rows and not by_columns:
            copies.append(tracer.hold(site, nbytes_of(factor)))
    return copies


def addmm(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """With a bias along the columns through cuBLASLt, else through cuBLAS."""
    tracer.outputs(out, site)
    bias, left, right = args[:3]
    fused = (
        bias.dim() == 1
        and bias.is_contiguous()
        and all(factor == 1 for factor in kwargs.values())
        and left.shape[1] > 1
        and right.shape[1] == bias.shape[0] > 1
    )
    copies = _blas_copies(tracer, site, args[:3])
    tracer.library_call(Kind.EPILOGUE_GEMM if fused else Kind.GEMM, site)
    for copied in reversed(copies):
        copied()


def trilinear(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """bilinear: products through cuBLAS, one output feature after the other."""
    tracer.outputs(out, site)
    tracer.library_call(Kind.GEMM, site)


def grouped_mm_kernel(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The output of ``_grouped_mm``: PyTorch's fake kernel knows bf16 only and pads rows in CUDA builds only."""
    left, right = args[:2]
    groups = _argument(args, kwargs, 2, "offs")
    dtype = _argument(args, kwargs, 4, "out_dtype") or left.dtype
    flat_left, flat_right = left.dim() == 2, right.dim() == 2
    shape = [left.shape[-2], right.shape[-1]]
    if flat_left == flat_right:
        shape = [groups.shape[0] if flat_left else left.shape[0], *shape]
    align = 16 // dtype.itemsize
    row = -(-shape[-1] // align) * align
    stride = [shape[-2] * row, row, 1][-len(shape) :]
    return torch.empty_strided(shape, stride, dtype=dtype, device=left.device)


def grouped_mm(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """bf16 is one kernel where there is one, with a table of the groups; all else is products of cuBLAS in turn."""
    tracer.outputs(out, site)
    left, right = args[:2]
    tile_bytes = _TILE_BYTES.get(tracer.compute_capability[0])
    if left.dtype != torch.bfloat16 or tile_bytes is None:
        tracer.library_call(Kind.GEMM, site)
        return
    groups = next((factor.shape[0] for factor in (left, right) if factor.dim() == 3), None)
    if groups is None:
        groups = _argument(args, kwargs, 2, "offs").shape[0]
    tracer.take(site, groups * _GROUP_BYTES, tracer.setting.multiprocessors * tile_bytes)


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str) -> Any:
    return args[position] if len(args) > position else kwargs.get(name)
