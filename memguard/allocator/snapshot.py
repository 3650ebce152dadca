"""What a memory snapshot of PyTorch says (``torch.cuda.memory._dump_snapshot``), the same for every generation."""

from __future__ import annotations

from typing import Any, NamedTuple

from memguard.allocator.blocks import PoolId

ACTIVE = "active_allocated"
"""State of a block that holds a tensor."""
PENDING = "active_pending_free"
"""State of a block that Python freed while another stream may still use it (before 2.1: ``active_awaiting_free``)."""
INACTIVE = "inactive"
"""State of a free block."""


class Frame(NamedTuple):
    """One frame of a stack; C++ frames have the file name ``??`` or that of a source file."""

    filename: str
    line: int
    name: str


Stack = tuple[Frame, ...]
"""Frames of an allocation, innermost first; empty where none were recorded."""


class Block(NamedTuple):
    """A range of a segment."""

    address: int
    size: int
    requested_size: int
    """What was asked for; for a free block, what its last user asked for."""
    state: str
    """`ACTIVE`, `PENDING` or `INACTIVE`."""
    stack: Stack


class Segment(NamedTuple):
    """Memory that the allocator got from the driver; an expandable one is a range of mapped pages."""

    device: int
    address: int
    size: int
    stream: int
    small: bool
    """Of the pool for sizes up to 1 MiB."""
    expandable: bool
    pool: PoolId
    """`memguard.allocator.blocks.DEFAULT_POOL`, or the private pool of a CUDA graph or MemPool."""
    blocks: tuple[Block, ...]


class TraceEntry(NamedTuple):
    """One event of the allocator's history, under PyTorch's names for the actions."""

    action: str
    """alloc, free_requested, free_completed, segment_alloc, segment_free, segment_map, segment_unmap, oom, snapshot."""
    address: int
    """0 where the action has none."""
    size: int
    """For alloc and free the bytes that were asked for."""
    stream: int
    time_us: int | None
    pool: PoolId | None
    """None before torch 2.10, whose traces do not tell."""
    device_free: int | None
    """Only for oom: what the driver still had."""
    stack: Stack


class Annotation(NamedTuple):
    """The begin or end of a named span, such as ``Optimizer.step#AdamW.step``."""

    name: str
    stage: str
    device: int
    time_us: int


class Snapshot(NamedTuple):
    """What a snapshot file says, the same for files of all versions."""

    segments: tuple[Segment, ...]
    traces: tuple[tuple[TraceEntry, ...], ...]
    """The history of each device, by its index; empty where none was recorded."""
    settings: dict[str, Any]
    """The allocator's settings; empty in files before torch 2.1."""
    annotations: tuple[Annotation, ...]

    @property
    def devices(self) -> tuple[int, ...]:
        """The devices with a segment or a trace, in order."""
        traced = {device for device, trace in enumerate(self.traces) if trace}
        return tuple(sorted(traced | {segment.device for segment in self.segments}))

    def segments_of(self, device: int) -> tuple[Segment, ...]:
        """The segments of one device, by address."""
        return tuple(sorted((s for s in self.segments if s.device == device), key=lambda segment: segment.address))

    def trace_of(self, device: int) -> tuple[TraceEntry, ...]:
        """The history of one device."""
        return self.traces[device] if device < len(self.traces) else ()
