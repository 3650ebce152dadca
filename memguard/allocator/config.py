"""PYTORCH_CUDA_ALLOC_CONF: the text that tunes PyTorch's caching allocator, read as PyTorch reads it and checked."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from memguard.allocator.config_values import MIB, READERS, ROUNDUP_INTERVALS, SINCE, Value

_NEWEST: Final = (2, 15)
_TOKENS = re.compile(r"[,:\[\]]|[^,:\[\]]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorConfig:
    """The allocator's settings (C++: ``AcceleratorAllocatorConfig`` and ``CUDAAllocatorConfig``).

    Settings of pinned host memory and of locking are checked and then dropped, as they change nothing on the device.
    """

    large_segment_bytes: int = 20 * MIB
    """What the driver is asked for by a request of 1 to 10 MiB; also the page of large expandable segments."""
    max_split_bytes: int | None = None
    """Blocks of at least this size are never split; None splits every size."""
    max_non_split_rounding_bytes: int = 20 * MIB
    """How much larger than asked an unsplittable block may be."""
    garbage_collection_threshold: float = 0.0
    """Share of the memory limit above which old cached blocks are released; 0 is off, and so is it without a limit."""
    roundup_power2_divisions: tuple[int, ...] = field(default=(0,) * ROUNDUP_INTERVALS)
    """Steps between two powers of two that sizes are rounded up to, per interval; 0 and 1 round to 512 bytes."""
    expandable_segments: bool = False
    expandable_segments_reserve: float | int | None = None
    """Addresses of one expandable segment: a share of the device (float) or bytes (int); None is 9/8 of the device."""
    per_process_memory_fraction: float = 1.0
    throw_on_cudamalloc_oom: bool = False
    graph_capture_record_stream_reuse: bool = False

    @classmethod
    def parse(cls, conf: str, torch_version: str | None = None) -> AllocatorConfig:
        """The settings in a text like ``"max_split_size_mb:128,expandable_segments:True"``.

        Args:
            conf: What would stand in ``PYTORCH_CUDA_ALLOC_CONF``; empty for the defaults.
            torch_version: The PyTorch to follow, like ``"2.9.1"``; None follows the newest one known, 2.15.

        Raises:
            ValueError: A key that this version does not know, or a value that it would refuse or misread.
        """
        version = parse_version(torch_version)
        settings: dict[str, object] = {}
        for key, value in _split(conf):
            read = READERS.get(key)
            if read is None or SINCE.get(key, (0, 0)) > version:
                known = ", ".join(sorted(k for k in READERS if SINCE.get(k, (0, 0)) <= version))
                newer = f" (PyTorch knows it from {'.'.join(map(str, SINCE[key]))} on)" if read is not None else ""
                raise ValueError(f"unknown key {key!r} in the allocator configuration{newer}; valid keys: {known}")
            settings.update(read(key, value, version))
        return cls(**settings)  # type: ignore[arg-type]

    def round_size(self, nbytes: int) -> int:
        """The size of block that serves a request (C++: ``round_size``): a multiple of 512, or of the coarser step set.

        Args:
            nbytes: Bytes asked for, at least 1.
        """
        if nbytes < 512:
            return 512
        floor = nbytes.bit_length() - 1
        divisions = self.roundup_power2_divisions[min(max(floor - 20, 0), ROUNDUP_INTERVALS - 1)]
        if divisions > 1 and nbytes > 512 * divisions:
            return _round_up_power2(nbytes, divisions)
        return (nbytes + 511) & ~511

    def reserve_bytes(self, total_bytes: int) -> int:
        """Addresses that one expandable segment takes on a device of this capacity, before rounding to pages."""
        full = total_bytes + total_bytes // 8
        if self.expandable_segments_reserve is None:
            return full
        if isinstance(self.expandable_segments_reserve, int):
            return min(self.expandable_segments_reserve, full)
        return min(int(self.expandable_segments_reserve * total_bytes), full)


def parse_version(torch_version: str | None) -> tuple[int, int]:
    """Major and minor number of a version like ``"2.9.1+cu128"``; the newest known one for None.

    Raises:
        ValueError: The text does not begin with two numbers.
    """
    if torch_version is None:
        return _NEWEST
    match = re.match(r"(\d+)\.(\d+)", torch_version)
    if match is None:
        raise ValueError(f"{torch_version!r} is not a version of PyTorch; write it like 2.9.1")
    return int(match[1]), int(match[2])


def _round_up_power2(nbytes: int, divisions: int) -> int:
    power = 1 << (nbytes.bit_length() - 1)
    if power == nbytes:
        return nbytes
    step = power >> (divisions.bit_length() - 1)
    return (nbytes + step - 1) & ~(step - 1) if step else power << 1


def _split(conf: str) -> list[tuple[str, Value]]:
    """Pairs of key and value (C++: ``ConfigTokenizer``); white space means nothing, a list keeps its items as texts."""
    tokens: list[str] = _TOKENS.findall("".join(conf.split()))
    pairs: list[tuple[str, Value]] = []
    at = 0
    while at < len(tokens):
        key = tokens[at]
        if key in ",:[]":
            raise ValueError(f"{conf!r} has {key!r} where a key belongs; write key:value,key:value")
        if tokens[at + 1 : at + 2] != [":"] or tokens[at + 2 : at + 3] in ([], [","], [":"], ["]"]):
            raise ValueError(f"{key!r} has no value in the allocator configuration; write {key}:VALUE")
        at += 2
        value: Value = tokens[at]
        if value == "[":
            if "]" not in tokens[at:]:
                raise ValueError(f"the list of {key!r} has no closing bracket in {conf!r}")
            end = tokens.index("]", at)
            value = [item for item in "".join(tokens[at + 1 : end]).split(",") if item]
            at = end
        pairs.append((key, value))
        at += 1
        if at < len(tokens):
            if tokens[at] != ",":
                raise ValueError(f"{tokens[at]!r} follows the value of {key!r} in {conf!r}; a comma must")
            at += 1
    return pairs
