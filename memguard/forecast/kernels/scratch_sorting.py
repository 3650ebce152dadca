"""What CUDA's sorts take beside their outputs. Found by comparing traces with the real allocator's history, 2.15.0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memguard.forecast.kernels.indexing import radix_sort_bytes, segmented_sort_bytes
from memguard.forecast.kernels.scratch_parts import nbytes_of

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer

_SMALL = 4096
"""Longer rows are sorted by CUB."""
_SECOND_SORT_BYTES = 16895
_MANY_ROWS, _LONG_ROW = 128, 1_000_000
"""From so many rows on a segmented sort takes them all, unless one alone fills the GPU: Sort.cu."""


def sort(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """The numbers of the elements, and CUB's storage: row by row, for few rows in one sort of all, or in segments."""
    tensor = args[0]
    tracer.outputs(out, site)
    if not tensor.numel() or not tensor.dim():
        return
    given = next((value for value in args[1:] if isinstance(value, int) and not isinstance(value, bool)), None)
    length = tensor.shape[given if given is not None else kwargs.get("dim", -1)]
    if length <= _SMALL:
        tracer.take(site, length * 8)
        return
    count = tensor.numel()
    rows = count // length
    bits = 8 * tensor.element_size()
    if rows == 1 or length >= _LONG_ROW:
        numbers = tracer.hold(site, length * 8)
        for _ in range(rows):
            tracer.take(site, radix_sort_bytes(length, bits, key_bytes=tensor.element_size()))
        numbers()
        return
    if rows >= _MANY_ROWS:
        tracer.take(site, count * 8, segmented_sort_bytes(count, tensor.element_size()))
        return
    pairs = [tracer.hold(site, count * 8), tracer.hold(site, count * 8)]
    keys = tracer.hold(site, nbytes_of(tensor))
    tracer.take(site, radix_sort_bytes(count, bits, key_bytes=tensor.element_size()))
    keys()
    tracer.take(site, _SECOND_SORT_BYTES)
    for release in pairs:
        release()
