"""Scratch memory of reductions that CUDA spreads over thread blocks, from ``setReduceConfig`` in Reduce.cuh.

A sum over a long dimension with few results (the gradient of a bias) keeps one partial result for each thread of each
block in memory from the allocator: megabytes for a kilobyte of result.
"""

from __future__ import annotations

from collections.abc import Sequence

_MAX_THREADS = 512
_WARP = 32
_MIN_VALUES, _MAX_VALUES = 16, 256
_INPUT_VECTOR = 4
_OUTPUT_VECTOR = 4


def reduction_scratch(
    shape: Sequence[int],
    strides: Sequence[int],
    dims: Sequence[int],
    *,
    itemsize: int,
    accumulator_bytes: int,
    multiprocessors: int,
    threads_per_multiprocessor: int,
) -> tuple[int, int]:
    """Bytes of the buffer and of the semaphores that a reduction takes; zeros if blocks need not work together.

    Args:
        shape: Of the input.
        strides: Of the input, in elements.
        dims: The dimensions that are reduced.
        itemsize: Bytes of an input element.
        accumulator_bytes: Bytes of one partial result.
        multiprocessors: Of the GPU.
        threads_per_multiprocessor: Of the GPU.
    """
    reduced = _coalesce([(strides[d], shape[d]) for d in range(len(shape)) if d in dims and shape[d] != 1])
    kept = _coalesce([(strides[d], shape[d]) for d in range(len(shape)) if d not in dims and shape[d] != 1])
    outputs = _product(size for _, size in kept)
    inputs = _product(size for _, size in reduced)
    if outputs == 0 or inputs <= 1:
        return 0, 0
    on_fastest = not kept or reduced[0][0] < kept[0][0]
    output_vector, (dim0, dim1) = _vectorized(reduced, kept, inputs, outputs, on_fastest=on_fastest)
    width, height = _block(dim0, dim1, _MAX_THREADS // output_vector)
    step_input, step_output = (width, 1) if on_fastest else (1, width)
    values = _ceil(inputs, step_input)
    split_height = values >= height * 16 or values >= _MAX_VALUES
    if split_height:
        step_input *= height
    else:
        step_output *= height
    values = _ceil(inputs, step_input)
    grid = _ceil(outputs // output_vector, step_output)
    target = multiprocessors * (threads_per_multiprocessor // (width * height))
    if not (split_height and values >= _MAX_VALUES and grid <= target):
        return 0, 0
    blocks = max(min(_ceil(target, grid), _ceil(values, _MIN_VALUES)), _ceil(values, _MAX_VALUES))
    if blocks <= 1:
        return 0, 0
    nbytes = accumulator_bytes * outputs * blocks
    if not on_fastest:
        nbytes *= width * output_vector
    return nbytes, 4 * grid


def _vectorized(
    reduced: list[tuple[int, int]], kept: list[tuple[int, int]], inputs: int, outputs: int, *, on_fastest: bool
) -> tuple[int, tuple[int, int]]:
    """How many results a thread works out at once, and how many threads the two dimensions of a block could use."""
    dim0, dim1 = (inputs, outputs) if on_fastest else (outputs, inputs)
    fastest_stride = reduced[0][0] if on_fastest else kept[0][0]
    if fastest_stride != 1:
        return 1, (dim0, dim1)
    if on_fastest:
        alone = dim0 > 128 and not kept and len(reduced) == 1
        return 1, (dim0 // _INPUT_VECTOR if alone else dim0, dim1)
    output_vector = _OUTPUT_VECTOR
    for number in [kept[0][1], *(stride for stride, _ in (*reduced, *kept[1:]))]:
        while number % output_vector:
            output_vector //= 2
    return output_vector, (dim0 // output_vector, dim1)


def _block(dim0: int, dim1: int, most: int) -> tuple[int, int]:
    """Width and height of a block of threads: powers of two, a warp wide first, then as high as there is use for."""
    pow0, pow1 = (most if dim >= most else _last_power(dim) for dim in (dim0, dim1))
    height = min(pow1, most // min(pow0, _WARP))
    return min(pow0, most // height), height


def _coalesce(dims: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """(stride, size) pairs, fastest first, neighbours that lie behind each other joined."""
    joined: list[tuple[int, int]] = []
    for stride, size in sorted(dims):
        if joined and joined[-1][0] * joined[-1][1] == stride:
            joined[-1] = (joined[-1][0], joined[-1][1] * size)
        else:
            joined.append((stride, size))
    return joined


def _product(values: object) -> int:
    result = 1
    for value in values:  # type: ignore[attr-defined]
        result *= value
    return result


def _last_power(number: int) -> int:
    return 1 << (max(number, 1).bit_length() - 1)


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)
