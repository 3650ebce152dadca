"""What matrix products take: the workspaces of the libraries, and copies of factors that they could not read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memguard.forecast.scratch_parts import nbytes_of
from memguard.forecast.trace import Kind

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer


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
        and not kwargs
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
