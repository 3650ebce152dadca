"""The keys of PYTORCH_CUDA_ALLOC_CONF: what each may hold, and since when PyTorch knows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MIB: Final = 1 << 20
MIN_LARGE_ALLOC_MIB: Final = 10
ROUNDUP_INTERVALS: Final = 16
"""Intervals of ``roundup_power2_divisions``: from 1 MiB to 32 GiB, one for each power of two."""

Value = str | list[str]
"""What stands behind a key: a text, or the items of a list."""

SINCE: Final = {
    # First minor version in which the key was seen; every other key is as old as any version modelled here.
    "large_segment_size_mb": (2, 13),
    "per_process_memory_fraction": (2, 10),
    "throw_on_cudamalloc_oom": (2, 13),
    "pinned_max_round_threshold_mb": (2, 13),
    "pinned_max_cached_size_mb": (2, 13),
    "pinned_free_catch_all": (2, 13),
    "graph_capture_record_stream_reuse": (2, 10),
    "expandable_segments_reserve": (2, 15),
    "expandable_segments_reserve_by_class": (2, 15),
}


def _single(key: str, value: Value, expected: str) -> str:
    if isinstance(value, list):
        raise _invalid(key, f"[{','.join(value)}]", expected)
    return value


def _invalid(key: str, value: object, expected: str) -> ValueError:
    return ValueError(f"{key} must be {expected}, got {value!r}")


def _mib(key: str, value: Value, expected: str, least: int) -> int:
    """A count of MiB as bytes; PyTorch would read 1e3 as 1 and wrap negative numbers around, so both are refused."""
    text = _single(key, value, expected)
    if not text.isascii() or not text.isdigit() or not least <= int(text) < 1 << 43:
        raise _invalid(key, text, expected)
    return int(text) * MIB


def _number(key: str, value: Value, expected: str) -> float:
    text = _single(key, value, expected)
    try:
        return float(text)
    except ValueError:
        raise _invalid(key, text, expected) from None


def _boolean(key: str, value: Value) -> bool:
    expected = "True or False, in exactly this spelling"
    text = _single(key, value, expected)
    if text not in ("True", "False"):
        raise _invalid(key, text, expected)
    return text == "True"


def _is_power2(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text).bit_count() == 1


def _roundup(key: str, value: Value, version: tuple[int, int]) -> dict[str, object]:
    """One number for every interval, or a list like ``[16:8,64:2,>:4]``: upper ends in MiB, each with its divisions."""
    if isinstance(value, str):
        if not _is_power2(value):
            raise _invalid(key, value, "a power of two, or a list like [256:1,512:2,>:4]")
        return {key: (int(value),) * ROUNDUP_INTERVALS}
    divisions = [0] * ROUNDUP_INTERVALS
    last, first = 0, True
    for item in value:
        end, _, number = item.partition(":")
        if number != "0" and not _is_power2(number):
            raise _invalid(key, item, "a list of items with a power of two, or 0, after the colon")
        if end == ">":
            # The rest began at the last named interval, and so overwrote it, in 2.9.1; behind it in 2.13 and 2.15.
            start = last + (version >= (2, 10))
            divisions[start:] = [int(number)] * (ROUNDUP_INTERVALS - start)
            continue
        if not _is_power2(end):
            raise _invalid(key, item, "a list of items with a power of two (MiB), or '>', before the colon")
        last = min(int(end).bit_length() - 1, ROUNDUP_INTERVALS - 1)
        if first:
            divisions[:last] = [int(number)] * last
            first = False
        divisions[last] = int(number)
    return {key: tuple(divisions)}


def _large_segment(key: str, value: Value, _: tuple[int, int]) -> dict[str, object]:
    expected = f"a whole number of MiB greater than {MIN_LARGE_ALLOC_MIB}"
    return {"large_segment_bytes": _mib(key, value, expected, MIN_LARGE_ALLOC_MIB + 1)}


def _max_split(key: str, value: Value, _: tuple[int, int]) -> dict[str, object]:
    return {"max_split_bytes": _mib(key, value, "a whole number of MiB, at least 20", 20)}


def _non_split_rounding(key: str, value: Value, _: tuple[int, int]) -> dict[str, object]:
    return {"max_non_split_rounding_bytes": _mib(key, value, "a whole number of MiB, at least 20", 20)}


def _gc_threshold(key: str, value: Value, _: tuple[int, int]) -> dict[str, object]:
    threshold = _number(key, value, expected := "greater than 0.0 and less than 1.0")
    if not 0.0 < threshold < 1.0:
        raise _invalid(key, threshold, expected)
    return {key: threshold}


def _fraction(key: str, value: Value, _: tuple[int, int]) -> dict[str, object]:
    fraction = _number(key, value, expected := "from 0.0 to 1.0")
    if not 0.0 <= fraction <= 1.0:
        raise _invalid(key, fraction, expected)
    return {key: fraction}


def _flag(key: str, value: Value, _: tuple[int, int]) -> dict[str, object]:
    return {key: _boolean(key, value)}


def _backend(key: str, value: Value, _: tuple[int, int]) -> dict[str, object]:
    if value == "cudaMallocAsync":
        raise ValueError(
            "backend:cudaMallocAsync hands memory management to the CUDA driver; its pool is not modelled; "
            "leave it out or write backend:native"
        )
    if value != "native":
        raise _invalid(key, value, "native (cudaMallocAsync exists, but is not modelled)")
    return {}


def _reserve(key: str, value: Value, _: tuple[int, int]) -> dict[str, object]:
    return {key: _reserve_size(key, _single(key, value, "a share like 0.5 or a size like 40G"))}


def _reserve_size(key: str, text: str) -> float | int:
    expected = "a positive share of the device like 0.5, or a size like 40G"
    number = _number(key, text.removesuffix("G"), expected)
    if not 0.0 < number < float("inf"):
        raise _invalid(key, text, expected)
    return int(number * (1 << 30)) if text.endswith("G") else number


def _reserve_by_class(key: str, value: Value, _: tuple[int, int]) -> dict[str, object]:
    """Checked only: a stream has a class where the program tags it, which a trace of allocations does not tell."""
    expected = "a list like [decode:0.25,prefill:40G]"
    if isinstance(value, str):
        raise _invalid(key, value, expected)
    for item in value:
        _reserve_size(key, item.partition(":")[2])
    return {}


def _host_flag(key: str, value: Value, _: tuple[int, int]) -> dict[str, object]:
    _boolean(key, value)
    return {}


def _host_mib(key: str, value: Value, _: tuple[int, int]) -> dict[str, object]:
    _mib(key, value, "a whole number of MiB", 0)
    return {}


def _host_threads(key: str, value: Value, _: tuple[int, int]) -> dict[str, object]:
    text = _single(key, value, expected := "a power of two, at most 128")
    if not _is_power2(text) or int(text) > 128:
        raise _invalid(key, text, expected)
    return {}


READERS: Final[dict[str, Callable[[str, Value, tuple[int, int]], dict[str, object]]]] = {
    "backend": _backend,
    "expandable_segments": _flag,
    "expandable_segments_reserve": _reserve,
    "expandable_segments_reserve_by_class": _reserve_by_class,
    "garbage_collection_threshold": _gc_threshold,
    "graph_capture_record_stream_reuse": _flag,
    "large_segment_size_mb": _large_segment,
    "max_non_split_rounding_mb": _non_split_rounding,
    "max_split_size_mb": _max_split,
    "per_process_memory_fraction": _fraction,
    "pinned_free_catch_all": _host_flag,
    "pinned_max_cached_size_mb": _host_mib,
    "pinned_max_round_threshold_mb": _host_mib,
    "pinned_num_register_threads": _host_threads,
    "pinned_reserve_segment_size_mb": _host_mib,
    "pinned_use_background_threads": _host_flag,
    "pinned_use_cuda_host_register": _host_flag,
    "pinned_use_hip_host_register": _host_flag,
    "release_lock_on_cudamalloc": _host_flag,
    "release_lock_on_hipmalloc": _host_flag,
    "roundup_power2_divisions": _roundup,
    "throw_on_cudamalloc_oom": _flag,
}
