"""A trace replayed through the simulated caching allocator: peaks, where they are, and whether a card can hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, final

from memguard.allocator import CachingAllocator, FallingDriver, OutOfMemory, RisingDriver
from memguard.forecast.kernels.workspaces import Workspaces, expand, is_optional
from memguard.forecast.trace import Event, Kind, Trace

_UNLIMITED = 1 << 50


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StepMemory:
    """The allocator's figures for one step."""

    allocated_start_bytes: int
    """In tensors before the step."""
    allocated_peak_bytes: int
    """Highest within it."""
    allocated_end_bytes: int
    """In tensors after it."""
    reserved_peak_bytes: int
    """Highest since the process began: it never falls unless the cache is emptied."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What the allocator did with a trace."""

    steps: tuple[StepMemory, ...]
    allocated_peak_bytes: int
    reserved_peak_bytes: int
    peak_event: int
    """Index of the event at which allocated memory was highest, among the expanded events."""
    events: list[Event]
    """The trace's events with the workspaces in them."""
    num_alloc_retries: int
    out_of_memory: str | None
    """PyTorch's text if it ran out of memory; then the figures stop there."""
    failed_event: int | None = None
    refused_bytes: tuple[int, ...] = ()
    """Workspaces of convolutions for which there was no memory; among the events they have zero bytes."""

    def alive_at_peak(self) -> list[Event]:
        """The allocations that were alive when allocated memory was highest, in the order in which they were made."""
        alive: dict[int, Event] = {}
        for event in self.events[: self.peak_event + 1]:
            if event.kind == Kind.ALLOC:
                alive[event.block] = event
            elif event.kind == Kind.FREE:
                alive.pop(event.block, None)
        return list(alive.values())

    def curve(self) -> list[tuple[int, int]]:
        """Index of each event that changes memory, and the bytes asked for and not yet given back after it."""
        sizes: dict[int, int] = {}
        total = 0
        points = []
        for index, event in enumerate(self.events):
            if event.kind == Kind.ALLOC:
                sizes[event.block] = event.nbytes
                total += event.nbytes
            elif event.kind == Kind.FREE:
                total -= sizes.pop(event.block, 0)
            else:
                continue
            points.append((index, total))
        return points


def simulate(
    trace: Trace,
    *,
    total_bytes: int | None = None,
    context_bytes: int = 0,
    others_bytes: int = 0,
    conf: str = "",
    torch_version: str,
    workspaces: Workspaces,
    falling: bool = False,
) -> Simulation:
    """Replay a trace through the caching allocator.

    Args:
        trace: The events.
        total_bytes: Capacity of the GPU; None for one without end.
        context_bytes: Taken by this process outside the allocator.
        others_bytes: Taken by other processes.
        conf: The text of ``PYTORCH_CUDA_ALLOC_CONF``.
        torch_version: Whose allocator and libraries to follow.
        workspaces: Sizes of the libraries' workspaces.
        falling: Whether the driver hands out ever lower addresses, and not ever higher ones.
    """
    capacity = total_bytes if total_bytes is not None else _UNLIMITED
    driver = (FallingDriver if falling else RisingDriver)(
        capacity, context_bytes=context_bytes, others_bytes=others_bytes
    )
    allocator = CachingAllocator(
        capacity,
        conf,
        torch_version,
        driver=driver,
        context_bytes=context_bytes,
        reserved_by_others_bytes=others_bytes,
    )
    events = list(expand(trace.events, torch_version, workspaces))
    played = _play(allocator, events)
    return Simulation(
        steps=played.steps,
        allocated_peak_bytes=played.allocated_peak_bytes,
        reserved_peak_bytes=allocator.reserved_peak_bytes,
        peak_event=played.peak_event,
        events=events,
        num_alloc_retries=allocator.stats()["num_alloc_retries"],
        out_of_memory=played.out_of_memory,
        failed_event=played.failed_event,
        refused_bytes=played.refused_bytes,
    )


class _Played(NamedTuple):
    """What came of the events, under the names that a `Simulation` has for it."""

    steps: tuple[StepMemory, ...]
    allocated_peak_bytes: int
    peak_event: int
    out_of_memory: str | None
    failed_event: int | None
    refused_bytes: tuple[int, ...]


def _play(allocator: CachingAllocator, events: list[Event]) -> _Played:
    """Gives the events to an allocator, up to the one for which it has no memory.

    A convolution whose workspace does not fit goes on with a plan that takes none, which the events then say too.
    """
    malloc, free = allocator.malloc, allocator.free
    addresses: dict[int, int] = {}
    steps: list[StepMemory] = []
    peak = peak_event = step_peak = step_start = 0
    started = False
    text: str | None = None
    failed: int | None = None
    refused: list[int] = []
    for index, (kind, block, nbytes, stream, _) in enumerate(events):
        if kind == Kind.ALLOC:
            try:
                addresses[block] = malloc(nbytes, stream)
            except OutOfMemory as error:
                if is_optional(block):
                    refused.append(nbytes)
                    events[index] = events[index]._replace(nbytes=0)
                    addresses[block] = 0
                    continue
                text, failed = str(error), index
                break
            now = allocator.allocated_bytes
            if now > step_peak:
                step_peak = now
                if now > peak:
                    peak, peak_event = now, index
        elif kind == Kind.FREE:
            free(addresses.pop(block))
        elif kind == Kind.STEP:
            if started:
                steps.append(_step(allocator, step_start, step_peak))
            started = True
            step_start = step_peak = allocator.allocated_bytes
        elif kind == Kind.RECORD_STREAM:
            allocator.record_stream(addresses[block], nbytes)
        elif kind == Kind.EMPTY_CACHE:
            allocator.empty_cache()
    if failed is not None and started:
        steps.append(_step(allocator, step_start, step_peak))
    return _Played(tuple(steps), peak, peak_event, text, failed, tuple(refused))


def _step(allocator: CachingAllocator, start: int, peak: int) -> StepMemory:
    return StepMemory(
        allocated_start_bytes=start,
        allocated_peak_bytes=peak,
        allocated_end_bytes=allocator.allocated_bytes,
        reserved_peak_bytes=allocator.reserved_peak_bytes,
    )
