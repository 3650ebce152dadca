"""Scratch memory of the sorts behind embedding gradients and index_put, as the real allocator's history showed it.

Sizes inside CUB are fitted to what torch 2.15.0 asks for; they are exact for the sizes tried and close in between.
"""

from __future__ import annotations

_SMALL_EMBEDDING = 3072
_ROWS_PER_THREAD = 10
_SCAN_BYTES = 1279
_TILE, _TILE_OF_SHORT_KEYS = 4608, 5376
"""Elements that one thread block of a radix sort takes."""


def radix_sort_bytes(count: int, bits: int, key_bytes: int = 8) -> int:
    """Temporary storage of CUB's radix sort of `count` keys with 64-bit values by the keys' lowest `bits`."""
    if count <= 2048:
        return 1
    passes = -(-bits // 8)
    buffers = (8 + key_bytes) * count if passes > 1 else 0
    tiles = -(-count // (_TILE if key_bytes == 8 else _TILE_OF_SHORT_KEYS))
    return _round(buffers, 256) + 511 + 2048 * passes + 1024 * tiles


def segmented_sort_bytes(count: int, key_bytes: int) -> int:
    """Temporary storage of CUB's segmented radix sort of `count` keys with 64-bit values, in segments of any length."""
    return _round(key_bytes * count, 256) + _round(8 * count, 256) + 255


def embedding_backward_plan(
    count: int, rows: int, width: int, itemsize: int, *, sort_always: bool = False
) -> list[int]:
    """Sizes that the gradient of an embedding takes, in order; a negative one is given back.

    Args:
        count: Number of indices.
        rows: Of the table.
        width: Of a row.
        itemsize: Bytes of an element of the table.
        sort_always: Also for few indices.
    """
    weight = rows * width * itemsize
    if count <= _SMALL_EMBEDDING and not sort_always:
        return [weight]
    indices = 8 * count
    sort = radix_sort_bytes(count, max(rows - 1, 1).bit_length())
    segments = 8 * min(count, rows)
    partial = count // _ROWS_PER_THREAD + min(count, rows)
    partials = partial * 4 * _round(width, 32)
    return [
        *(indices, indices, indices, sort, -sort, -indices),
        weight,
        *(indices, 8, indices, _SCAN_BYTES, -_SCAN_BYTES, -indices),
        *(segments, segments, _SCAN_BYTES, -_SCAN_BYTES, 8),
        *(8 * partial, partials, -partials, -8 * partial),
        *(-8, -segments, -segments, -8, -indices, -indices, -indices),
    ]


def index_put_plan(count: int, rows: int) -> list[int]:
    """Sizes that an accumulating index_put takes beside what it writes to."""
    indices = 8 * count
    sort = radix_sort_bytes(count, max(rows - 1, 1).bit_length())
    return [
        *(indices, indices, -indices),
        *(indices, indices, indices, sort, -sort),
        *(-indices, -indices, -indices, -indices),
    ]


def _round(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
