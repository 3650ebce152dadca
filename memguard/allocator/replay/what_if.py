"""A recorded trace under another configuration of the allocator, or on another card."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Final, final

from memguard.allocator.analysis.lines import Lines
from memguard.allocator.blocks import DEFAULT_POOL, PoolId
from memguard.allocator.caching import CachingAllocator
from memguard.allocator.config import AllocatorConfig
from memguard.allocator.messages import OutOfMemory
from memguard.allocator.replay.causes import GIVES, TAKES, causes_of
from memguard.allocator.replay.in_use import BlocksInUse
from memguard.allocator.replay.recorded_conf import recorded_conf
from memguard.allocator.replay.result import enough_events
from memguard.allocator.replay.sizes import block_sizes, blocks_by_range, segments_of_state
from memguard.allocator.replay.state import state_before
from memguard.allocator.snapshot import Snapshot
from memguard.errors import SnapshotError

_UNLIMITED_BYTES: Final = 1 << 44
_SUMMED: Final = (
    "laid_out_bytes",
    "reserved_bytes",
    "reserved_peak_bytes",
    "allocated_peak_bytes",
    "num_segments",
    "recorded_num_segments",
    "num_alloc_retries",
    "num_ooms",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstOutOfMemory:
    """The allocation at which the program would have ended."""

    event: int
    """Index in the trace; -1 for the memory in use before it."""
    size_bytes: int
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """What would have happened. Behind a failure the rest is replayed as if the program had gone on without it."""

    conf: str
    capacity_bytes: int | None
    """None: unlimited."""
    capacity_source: str | None
    """Where that is known from: "given", "out of memory" (exact), "retry" (the most it can have been), or None."""
    laid_out_bytes: int
    """Of memory that stood before the history and was laid out anew: where it would have lain is a guess."""
    enough_events: bool
    """Whether the history has enough events for anything to be concluded."""
    reserved_bytes: int
    """At the end."""
    reserved_peak_bytes: int
    allocated_peak_bytes: int
    num_segments: int
    """At the end; of expandable segments, ranges of mapped pages."""
    recorded_num_segments: int
    num_alloc_retries: int
    num_ooms: int
    first_oom: FirstOutOfMemory | None

    def __add__(self, other: WhatIf) -> WhatIf:
        """Two devices together; the first failure is that of the first device that has one."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in _SUMMED}
        enough = self.enough_events and other.enough_events
        return replace(self, first_oom=self.first_oom or other.first_oom, enough_events=enough, **sums)

    def to_json(self) -> dict[str, Any]:
        """The same under the names of the fields."""
        return asdict(self)


def what_if(snapshot: Snapshot, device: int, *, conf: str | None = None, capacity_bytes: int | None = None) -> WhatIf:
    """One device's trace under another configuration, or with another capacity.

    Under another configuration, the memory in use when the trace began is laid out anew, in the order of its addresses:
    what an allocator so configured would have made of it. Under the recorded one it stands as it stood.

    Args:
        snapshot: A snapshot with a trace of the device.
        device: Its index.
        conf: What would stand in ``PYTORCH_CUDA_ALLOC_CONF``; None for the recorded one.
        capacity_bytes: What the card has for PyTorch; None takes what the recorded one had where the trace tells it
            (it does where memory ran out, and where the allocator had to retry: at most so much), else there is no
            limit.

    Raises:
        ValueError: ``conf`` is not valid.
        SnapshotError: The trace contradicts itself.
    """
    recorded = recorded_conf(snapshot.settings)
    if conf is not None:
        AllocatorConfig.parse(conf)
    try:
        return _Run(snapshot, device, recorded, recorded if conf is None else conf, capacity_bytes).run()
    except (LookupError, TypeError, ValueError):
        raise SnapshotError(f"the trace of device {device} contradicts itself, so it cannot be replayed") from None


@final
class _Run:
    def __init__(
        self, snapshot: Snapshot, device: int, recorded_conf: str, conf: str, capacity_bytes: int | None
    ) -> None:
        self._trace, self._segments = snapshot.trace_of(device), snapshot.segments_of(device)
        self._conf = conf
        recorded = AllocatorConfig.parse(recorded_conf)
        self._state = state_before(self._segments, self._trace, recorded)
        self._causes = causes_of(self._trace)
        self._capacity, self._source = (capacity_bytes, "given") if capacity_bytes else self._recorded_capacity()
        self._laid_out = 0
        self._failures: list[FirstOutOfMemory] = []
        self._pools: dict[PoolId, PoolId] = {DEFAULT_POOL: DEFAULT_POOL}
        total = self._capacity or _UNLIMITED_BYTES
        if conf == recorded_conf:
            sizes, _ = block_sizes(self._state, self._trace, recorded, {})
            segments = segments_of_state(self._state, sizes)
            self._allocator = CachingAllocator.from_segments(segments, total, conf, pending=True)
            self._pools |= {held.pool: held.pool for held in self._state.ranges}
            known = [block for block in self._state.blocks if block.address in sizes]
            self._in_use = BlocksInUse(self._allocator, known)
        else:
            self._allocator = CachingAllocator(total, conf, pending=True)
            self._in_use = BlocksInUse(self._allocator)
            self._lay_out_anew()
        self._allocator.reset_accumulated_stats()

    def run(self) -> WhatIf:
        trace = self._trace
        emptied = self._causes.emptied
        lines = Lines()
        for at, entry in enumerate(trace):
            if at in emptied:
                self._allocator.empty_cache()
            if entry.action in ("alloc", "oom"):
                if not self._malloc(entry.address, entry.size, entry.stream, self._state.pools[at]):
                    self._failed(at, entry.size, str(lines.of(entry.stack)))
                elif entry.action == "oom":  # what the program did with it, nobody knows
                    self._allocator.free(self._in_use.held.pop(entry.address))
            elif entry.action == "free_requested":
                following = trace[at + 1] if at + 1 < len(trace) else None
                done = following and following.action == "free_completed" and following.address == entry.address
                self._in_use.free(entry.address, done=bool(done))
            elif entry.action == "free_completed":
                self._in_use.complete(entry.address)
        if len(trace) in emptied:
            self._allocator.empty_cache()
        stats = self._allocator.stats()
        return WhatIf(
            conf=self._conf,
            capacity_bytes=self._capacity,
            capacity_source=self._source,
            laid_out_bytes=self._laid_out,
            enough_events=enough_events(len(trace)),
            reserved_bytes=stats["reserved_bytes.all.current"],
            reserved_peak_bytes=stats["reserved_bytes.all.peak"],
            allocated_peak_bytes=stats["allocated_bytes.all.peak"],
            num_segments=len(self._allocator.snapshot()["segments"]),
            recorded_num_segments=len(self._segments),
            num_alloc_retries=stats["num_alloc_retries"],
            num_ooms=len(self._failures),
            first_oom=self._failures[0] if self._failures else None,
        )

    def _recorded_capacity(self) -> tuple[int | None, str | None]:
        """What PyTorch could have had, and how that is known.

        Where an allocation failed, it is what PyTorch held and what was left. Where one succeeded only after the cache
        was given back, what was held before and what was asked for together were too much.
        """
        reserved = sum(held.size for held in self._state.ranges)
        taken = 0
        before: int | None = None
        bound: int | None = None
        for at, entry in enumerate(self._trace):
            if entry.action in TAKES:
                reserved += entry.size
                taken = entry.size
            elif entry.action in GIVES:
                before = reserved if before is None else before
                reserved -= entry.size
            elif entry.action == "oom" and entry.device_free is not None:
                return reserved + entry.device_free, "out of memory"
            elif entry.action in ("alloc", "free_requested"):
                if at in self._causes.retried and before is not None:
                    refused = before + taken - 1
                    bound = refused if bound is None else min(bound, refused)
                before = None
        return bound, "retry" if bound is not None else None

    def _lay_out_anew(self) -> None:
        """Allocates what was in use when the trace began."""
        for held, inside in blocks_by_range(self._state):
            for block in inside:
                self._laid_out += block.requested_size
                if not self._malloc(block.address, block.requested_size, held.stream, held.pool):
                    self._failed(-1, block.requested_size, "what was in use before the trace began")
                elif not block.allocated:
                    self._in_use.free(block.address, done=False)

    def _failed(self, event: int, size: int, where: str) -> None:
        self._failures.append(FirstOutOfMemory(event=event, size_bytes=size, where=where))

    def _malloc(self, address: int, size: int, stream: int, pool: PoolId) -> bool:
        if pool not in self._pools:
            self._pools[pool] = self._allocator.create_pool()
        try:
            self._in_use.held[address] = self._allocator.malloc(max(size, 1), stream, self._pools[pool])
        except OutOfMemory:  # what is asked here: the caller notes it
            return False
        return True
