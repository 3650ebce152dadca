"""A trace from the allocation history of real steps, and from two of them one for another batch. Knows no torch."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, final

from memguard.allocator.replay.causes import causes_of
from memguard.allocator.snapshot import Snapshot, Stack, TraceEntry
from memguard.errors import MemGuardError
from memguard.forecast.child import of_a_library
from memguard.forecast.simulate import StepMemory
from memguard.forecast.trace import Event, Kind, Recorded, Site, Trace

_IN_A_ROW = 3
"""So many allocations alike, and two histories are in step again."""
_FARTHEST = 48
"""So many allocations at most are passed over to get there."""
_MOST_ALONE = 0.1
"""Share of the bytes that only one of two batch sizes may allocate."""
_OTHER_STREAM = -1
"""The stream that a freed block waits for; a history does not tell which one it was."""
_SETUP = Site(None, None, None, "", "setup")


class Moment(NamedTuple):
    """A place in a history, by what had happened until then."""

    allocations: int
    frees: int


class Owned(NamedTuple):
    """What the memory at an address was for when so many allocations had been made."""

    allocations: int
    address: int
    owner: str


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Real steps on a GPU: what its allocator counted, and all that it did."""

    batch: int | None
    takes_batch: bool
    """Whether the function builds the step for a batch size that it is given."""
    device: str
    torch_version: str
    steps: tuple[StepMemory, ...]
    allocated_peak_bytes: int
    reserved_peak_bytes: int
    num_alloc_retries: int
    outside_bytes: int
    """What was in use on the GPU beside PyTorch's allocator: CUDA's context, libraries, other processes."""
    trace: Trace | None
    """None where it ran out of memory."""
    out_of_memory: str | None = None
    """PyTorch's text."""


def trace_of_history(
    snapshot: Snapshot,
    device: int,
    steps: Sequence[Moment],
    owned: Iterable[Owned],
    *,
    recorded: Recorded,
    runner: tuple[str, str],
    compute_capability: tuple[int, int],
    torch_version: str,
    batch: int | None,
) -> Trace:
    """The events of a whole history as those of a traced step.

    Args:
        snapshot: With the history of all that the process did.
        device: Index of the GPU.
        steps: The beginning of each step, and the end of the last one.
        owned: What is known of whose memory is whose.
        recorded: Where and how it was recorded.
        runner: File and name of the function that called the steps: what was allocated without it on the stack was
            allocated by autograd's own threads.
        compute_capability: Of the GPU.
        torch_version: The PyTorch that ran.
        batch: The batch size.

    Raises:
        MemGuardError: The history does not hold all.
    """
    history = snapshot.trace_of(device)
    places = _Places(runner)
    events: list[Event] = []
    owners: list[str] = []
    made: dict[int, list[int]] = defaultdict(list)
    """Address -> blocks, in order."""
    held: dict[int, int] = {}
    emptied = causes_of(history).emptied
    marks, step = list(steps), -1
    frees = 0
    for at, entry in enumerate(history):
        while marks and (len(owners), frees) == marks[0]:
            marks.pop(0)
            step += 1
            events.append(Event(Kind.STEP, 0, step, 0, 0))
        if at in emptied:
            events.append(Event(Kind.EMPTY_CACHE, 0, 0, 0, 0))
        if entry.action == "alloc":
            block = len(owners)
            owners.append("")
            held[entry.address] = block
            made[entry.address].append(block)
            site = places.index(entry.stack, stepping=step >= 0)
            events.append(Event(Kind.ALLOC, block, max(entry.size, 1), entry.stream, site))
        elif entry.action == "free_requested":
            frees += 1
            if (known := held.pop(entry.address, None)) is not None:
                if _waits(history, at):
                    events.append(Event(Kind.RECORD_STREAM, known, _OTHER_STREAM, 0, 0))
                events.append(Event(Kind.FREE, known, 0, 0, 0))
    for mark in marks:
        if mark != (len(owners), frees):
            raise MemGuardError("the steps allocate more often than can be recorded; measure fewer (--steps 1)")
        step += 1
        events.append(Event(Kind.STEP, 0, step, 0, 0))
    for allocations, address, owner in owned:
        blocks = made.get(address, [])
        index = bisect_left(blocks, allocations) - 1
        if index >= 0:
            owners[blocks[index]] = owner
    found = Trace(
        events=events,
        sites=places.table,
        owners=owners,
        steps=len(steps) - 1,
        compute_capability=compute_capability,
        torch_version=torch_version,
        operators=0,
        batch=batch,
        recorded=recorded._replace(falling=falls(history)),
    )
    settle(found)
    return found


def falls(history: Sequence[TraceEntry]) -> bool:
    """Whether most new segments of a history are below the one before."""
    addresses = [entry.address for entry in history if entry.action == "segment_alloc"]
    return sum(after < before for before, after in pairwise(addresses)) > len(addresses) // 2


def _waits(history: Sequence[TraceEntry], at: int) -> bool:
    """Whether a block that is freed still waits for a stream."""
    if at + 1 == len(history):
        return False
    following = history[at + 1]
    return following.action != "free_completed" or following.address != history[at].address


@final
class _Places:
    """The places of stacks, each once."""

    def __init__(self, runner: tuple[str, str]) -> None:
        self.table = [_SETUP]
        self._runner = runner
        self._of_site: dict[Site, int] = {_SETUP: 0}
        self._of_stack: dict[tuple[int, bool], tuple[int, Stack]] = {}
        """By identity, for equal stacks of a snapshot are one object."""

    def index(self, stack: Stack, *, stepping: bool) -> int:
        """The number of a stack's place."""
        key = (id(stack), stepping)
        if key not in self._of_stack:
            site = self._site(stack, stepping)
            self._of_stack[key] = (self._of_site.setdefault(site, len(self.table)), stack)
            if self._of_stack[key][0] == len(self.table):
                self.table.append(site)
        return self._of_stack[key][0]

    def _site(self, stack: Stack, stepping: bool) -> Site:
        phase = "setup"
        if stepping:
            files = [frame.filename for frame in stack]
            elsewhere = not any((frame.filename, frame.name) == self._runner for frame in stack)
            if elsewhere or any("/torch/autograd/" in file for file in files):
                phase = "backward"
            else:
                phase = "optimizer" if any("/torch/optim/" in file for file in files) else "forward"
        user = next((frame for frame in stack if not of_a_library(frame.filename)), None)
        if user is None:
            return Site(None, None, None, "", phase)
        return Site(user.filename, user.line, user.name, "", phase)


def scaled(one: Trace, other: Trace, batch: int) -> Trace:
    """The trace of another batch size: each allocation on the line through what two measured sizes asked for.

    What only the nearer of the two allocates, as kernels take scratch by the size of their input, stays as it is.

    Raises:
        MemGuardError: The two have too little in common.
    """
    small, large = sorted((one, other), key=lambda trace: trace.batch or 0)
    assert small.batch is not None and large.batch is not None
    near = small if abs(small.batch - batch) < abs(large.batch - batch) else large
    share = (batch - small.batch) / (large.batch - small.batch)
    smalls, larges = _allocations(small), _allocations(large)
    nbytes: dict[int, int] = {}
    for less, more in _pairs(smalls, larges, large.batch / small.batch):
        block = (less if near is small else more).block
        nbytes[block] = max(1, round(less.nbytes + (more.nbytes - less.nbytes) * share))
    own = smalls if near is small else larges
    alone = sum(each.nbytes for each in own if each.block not in nbytes)
    if alone > _MOST_ALONE * sum(each.nbytes for each in own):
        raise MemGuardError(
            f"batch {small.batch} and batch {large.batch} allocate too differently: no other batch size follows "
            "from these two"
        )
    events = [
        event._replace(nbytes=nbytes.get(event.block, event.nbytes)) if event.kind == Kind.ALLOC else event
        for event in near.events
    ]
    recorded = near.recorded and near.recorded._replace(scaled=True)
    return replace(near, events=events, batch=batch, recorded=recorded)


class _Allocation(NamedTuple):
    site: Site
    stream: int
    nbytes: int
    block: int


def _allocations(trace: Trace) -> list[_Allocation]:
    return [
        _Allocation(trace.sites[event.site], event.stream, event.nbytes, event.block)
        for event in trace.events
        if event.kind == Kind.ALLOC
    ]


def _pairs(
    smalls: Sequence[_Allocation], larges: Sequence[_Allocation], ratio: float
) -> Iterator[tuple[_Allocation, _Allocation]]:
    """The allocations that two batch sizes have in common, in order."""

    def alike(at: int, to: int) -> bool:
        less, more = smalls[at], larges[to]
        return less[:2] == more[:2] and less.nbytes <= more.nbytes <= less.nbytes * ratio

    def agree(at: int, to: int) -> bool:
        """Whether they go on alike from here."""
        length = min(_IN_A_ROW, len(smalls) - at, len(larges) - to)
        return length > 0 and all(alike(at + more, to + more) for more in range(length))

    at = to = 0
    while at < len(smalls) and to < len(larges):
        if alike(at, to):
            yield smalls[at], larges[to]
            at, to = at + 1, to + 1
            continue
        skips = ((first, skip - first) for skip in range(1, _FARTHEST) for first in range(skip + 1))
        first, second = next((skip for skip in skips if agree(at + skip[0], to + skip[1])), (1, 1))
        at, to = at + first, to + second


# What each block of a trace is for, as far as its life tells: activations live into a backward, temporaries do not.


def settle(trace: Trace) -> None:
    """Name the owner of every block that the tracer could not name while it ran."""
    sites, owners = trace.sites, trace.owners
    waiting: dict[int, str] = {}
    """Blocks of a forward, not yet known to be activations."""
    for event in trace.events:
        phase = sites[event.site].phase
        if event.kind == Kind.ALLOC:
            if owners[event.block]:
                continue
            if phase == "setup":
                owners[event.block] = "inputs"
            elif phase == "forward":
                waiting[event.block] = phase
            else:
                owners[event.block] = "temporaries"
            if phase == "backward" and waiting:
                for block in waiting:
                    owners[block] = "activations"
                waiting.clear()
        elif event.kind == Kind.FREE and waiting.pop(event.block, ""):
            owners[event.block] = "temporaries"
    for block in waiting:
        owners[block] = owners[block] or "activations"
    for block, owner in enumerate(owners):
        if not owner:
            owners[block] = "temporaries"
