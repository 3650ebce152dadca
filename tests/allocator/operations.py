"""Random work for an allocator, real or simulated, as plain data, so that both can be given the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Protocol

MIB = 1 << 20
CONFIGS = {
    "default": "",
    "expandable": "expandable_segments:True",
    "max_split": "max_split_size_mb:64",
    "max_split_rounding": "max_split_size_mb:64,max_non_split_rounding_mb:40",
    "fraction": "per_process_memory_fraction:0.7",
    "garbage": "garbage_collection_threshold:0.6,per_process_memory_fraction:0.5",
    "garbage_max_split": "garbage_collection_threshold:0.4,per_process_memory_fraction:0.8,max_split_size_mb:32",
    "roundup": "roundup_power2_divisions:4",
    "roundup_list": "roundup_power2_divisions:[16:8,64:2,256:1,>:4]",
    "large_segment": "large_segment_size_mb:40",
    "large_segment_odd": "large_segment_size_mb:21",
    "rejecting": "throw_on_cudamalloc_oom:True",
    "expandable_large": "expandable_segments:True,large_segment_size_mb:40",
    "expandable_garbage": "expandable_segments:True,garbage_collection_threshold:0.6,per_process_memory_fraction:0.5",
    "expandable_max_split": "expandable_segments:True,max_split_size_mb:64",
    "expandable_reserve": "expandable_segments:True,expandable_segments_reserve:0.25",
    "expandable_roundup": "expandable_segments:True,roundup_power2_divisions:[1:4,1024:2,>:8]",
}
MODES = ("plain", "streams", "pending", "pools", "lending_pools", "whole_pools")
"""Without ``record_stream``; with it, events done at once; with it, done at a synchronisation; with a private pool;
with one that serves others in need; with one whose blocks are never split."""

_SIZES = [(0.30, 1, 4096), (0.55, 1, MIB), (0.75, MIB, 12 * MIB), (0.92, MIB, 200 * MIB), (0.96, 200 * MIB, 1200 * MIB)]
_EDGES = [
    512,
    513,
    MIB,
    MIB + 1,
    10 * MIB - 1,
    10 * MIB,
    20 * MIB,
    32 * MIB,
    64 * MIB,
    64 * MIB + 1,
    128 * MIB,
    1 << 30,
]

Operation = tuple[Any, ...]
"""A name and its arguments; a handle is the number of the ``malloc`` that gave the block.

``("malloc", nbytes, stream, pool)``, ``("free", handle)``, ``("record_stream", handle, stream)``, ``("empty_cache",)``,
``("synchronize",)``, ``("reset_peak",)``, ``("reset_accumulated",)``, ``("set_fraction", share)``, ``("renew_pool",)``.
"""


Event = tuple[str, int, int, int]
"""Action, address, size and stream."""


@dataclass(frozen=True)
class Run:
    """One process's worth of operations."""

    config: str
    total_gib: int
    mode: str
    seed: int
    count: int

    @property
    def pool_options(self) -> dict[str, bool] | None:
        """How the run's private pools are made; None if it has none."""
        if not self.mode.endswith("pools"):
            return None
        return {"use_on_oom": self.mode == "lending_pools", "no_split": self.mode == "whole_pools"}

    @property
    def conf(self) -> str:
        return CONFIGS[self.config]

    def operations(self) -> Iterator[Operation]:
        """The operations; what they are does not depend on what comes of them, so a freed handle may not exist."""
        rng = random.Random(f"{self.config} {self.mode} {self.seed}")
        scatter = rng.random()  # share of frees that hit any block, not the newest
        live: list[int] = []
        handles = 0
        for _ in range(self.count):
            act = rng.random()
            if act < 0.004:
                yield rng.choice(self._rare())
            elif act < 0.52 or not live:
                stream = rng.randrange(3) if rng.random() < 0.3 else 0
                pool = int(self.pool_options is not None and rng.random() < 0.3)
                yield "malloc", _size(rng), stream, pool
                live.append(handles)
                handles += 1
            elif act < 0.6 and self.mode in ("streams", "pending"):
                yield "record_stream", rng.choice(live), rng.randrange(3)
            else:
                yield "free", live.pop(rng.randrange(len(live)) if rng.random() < scatter else -1)

    def _rare(self) -> list[Operation]:
        rare: list[Operation] = [("empty_cache",), ("empty_cache",), ("reset_peak",), ("reset_accumulated",)]
        if self.mode == "pending":
            rare += [("synchronize",)] * 3
        # PyTorch 2.15 crashes where a released pool's expandable segments shrink while blocks of them are in use.
        if self.pool_options is not None and "expandable" not in self.config:
            rare += [("renew_pool",)] * 3
        if self.config == "fraction":
            rare += [("set_fraction", 0.3), ("set_fraction", 0.9), ("set_fraction", 1.0)]
        return rare

    def comparable(self, stats: dict[str, int]) -> dict[str, int]:
        """The statistics that must agree.

        PyTorch frees blocks that waited for several streams in the order of a hash map; what stands split off between
        two of these frees is the one thing that depends on it.
        """
        if self.mode not in ("streams", "pending"):
            return stats
        return {k: v for k, v in stats.items() if not k.startswith("inactive_split") or k.endswith(".current")}


_UNORDERED = (("free_completed",), ("segment_free", "segment_unmap"))
"""Events that PyTorch orders by a hash map: frees over streams that were waited for, releases over private pools."""


def in_known_order(events: list[Event]) -> list[Event]:
    """The events, with each run of such events sorted."""
    ordered: list[Event] = []
    for _, run in groupby(events, lambda event: next((kinds for kinds in _UNORDERED if event[0] in kinds), event[0])):
        ordered += sorted(run)
    return ordered


class Executor(Protocol):
    """An allocator at work."""

    def apply(self, operation: Operation) -> int | str | None:
        """The address of a malloc, the text of its failure, or None for any other operation."""

    def stats(self) -> dict[str, int]: ...
    def segments(self) -> list[dict[str, Any]]: ...
    def events(self) -> list[Event]: ...


def comparable_segments(segments: list[dict[str, Any]], first: int, pools: list[tuple[int, int]]) -> list[Any]:
    """Segments with relative addresses and numbered pools, without stacks or what free blocks once served."""
    numbers = {(0, 0): 0} | {pool: number for number, pool in enumerate(pools, 1)}
    described = []
    for segment in segments:
        kept = {k: v for k, v in segment.items() if k not in ("frames", "address", "blocks", "segment_pool_id")}
        kept["address"] = segment["address"] - first
        kept["pool"] = numbers[tuple(segment["segment_pool_id"])]
        kept["blocks"] = [
            (b["address"] - first, b["size"], b["state"], b["requested_size"] if b["state"] != "inactive" else 0)
            for b in segment["blocks"]
        ]
        described.append(kept)
    return described


def describe(run: Run) -> dict[str, Any]:
    """A run as plain data."""
    return asdict(run)


def _size(rng: random.Random) -> int:
    share = rng.random()
    for limit, low, high in _SIZES:
        if share <= limit:
            return rng.randint(low, high)
    return rng.choice(_EDGES) if share < 0.997 else rng.choice([0, 1 << 60, 1 << 61])
