"""Facts about host memory: containers, pinned memory, DataLoader workers."""

from __future__ import annotations

from dataclasses import dataclass

from memguard.records.facts.fact import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOnHost(Fact):
    """A container keeps something in host memory with every batch: arrays, bytes, numbers, tensors on the CPU."""

    elements: int
    """By how many it grew while it was watched."""
    bytes: int
    bytes_per_batch: float
    first_batch: int | None = None
    """The batch from which on it grew, as far as that is known."""
    bounded: bool = False
    """Whether the source empties or limits it, as far as it shows."""
    by_key: bool = False
    """Whether that is only so because it is asked for a key before it is filled: how many keys there are, is open."""
    from_workers: bool = False
    """Whether tensors in shared memory are among them, as DataLoader workers hand them over."""
    pinned: bool = False
    """Whether tensors in pinned memory are among them."""
    capacity: int | None = None
    """How many elements it holds when it is full, where that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedCacheGrows(Fact):
    """PyTorch's cache of pinned memory held more at each look, and at least twice as much as some looks before."""

    bytes: int
    """What it holds."""
    active_bytes: int | None
    """Of this, what is in use."""
    before_bytes: int
    since_batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedRounded(Fact):
    """Tensors in pinned memory take more than they asked for: PyTorch rounds each block up to a power of two."""

    tensors: int
    bytes: int
    """What they asked for."""
    block_bytes: int
    """What their blocks take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerObjects(Fact):
    """A dataset that DataLoader workers read keeps Python objects, of which each worker gets a copy of its own."""

    workers: int
    elements: int
    """Of what grows: the dataset's samples, where it has a limit, and that is as large."""
    bytes: int
    """What one copy takes."""
    grows: bool = False
    """Whether reading adds to it, as to a cache: what is there is each worker's alone."""
