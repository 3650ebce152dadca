"""What CUDA's sorts take beside their outputs. Found by comparing traces with the real allocator's history, 2.15.0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memguard.forecast.kernels.indexing import radix_sort_bytes
from memguard.forecast.kernels.scratch_parts import nbytes_of

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer

_SMALL = 4096
"""Longer rows are sorted by CUB."""
_SECOND_SORT_BYTES = 16895


def sort(tracer: Tracer, site: int, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
    """The numbers of the elements; for long rows a radix sort's storage, rows and all if there are several."""
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
    bits = 8 * tensor.element_size()
    storage = radix_sort_bytes(count, bits, key_bytes=tensor.element_size())
    if count == length:
        tracer.take(site, count * 8, storage)
        return
    pairs = [tracer.hold(site, count * 8), tracer.hold(site, count * 8)]
    keys = tracer.hold(site, nbytes_of(tensor))
    tracer.take(site, storage)
    keys()
    tracer.take(site, _SECOND_SORT_BYTES)
    for release in pairs:
        release()
