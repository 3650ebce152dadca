"""One run of a recorded trace through the simulated allocator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, final

from memguard.allocator.blocks import DEFAULT_POOL, SMALL_BYTES, SMALL_SEGMENT_BYTES, PoolId
from memguard.allocator.caching import CachingAllocator
from memguard.allocator.config import AllocatorConfig
from memguard.allocator.messages import OutOfMemory
from memguard.allocator.replay.address_space import address_space_bytes
from memguard.allocator.replay.causes import GIVES, TAKES, causes_of
from memguard.allocator.replay.driver import RecordedDriver
from memguard.allocator.replay.in_use import BlocksInUse
from memguard.allocator.replay.recorded_conf import recorded_conf
from memguard.allocator.replay.result import Replay
from memguard.allocator.replay.sizes import block_sizes, segments_of_state
from memguard.allocator.replay.state import AllocatorState, state_before
from memguard.allocator.snapshot import ACTIVE, INACTIVE, Snapshot, TraceEntry
from memguard.errors import SnapshotError

# What the first mismatch of a replay teaches about the state in which its trace began.


@dataclass(frozen=True, slots=True)
class Misplaced:
    """The first allocation that got another address than recorded."""

    address: int
    """Where the simulator put it."""
    room: int
    """Size of the free block that it took."""
    size: int
    """What it needed."""


@final
@dataclass(slots=True)
class Lessons:
    """What one run showed; each lesson changes the state from which the next one begins."""

    misplaced: Misplaced | None = None
    kept: list[int] = field(default_factory=list)
    """Segments that the simulator gave back, and PyTorch kept."""
    kept_at: int = 0
    """The event at which it did."""

    def learn_tail(self, sizes: Mapping[int, int], guessed: Set[int], tails: dict[int, int]) -> bool:
        """Finds a tail that explains the misplaced allocation, and adds it to the tails; False if there is none.

        A free block that the simulator took and PyTorch did not was too small in truth: the block before it, whose
        size is a guess, has a tail.
        """
        first = self.misplaced
        if first is None:
            return False
        for address in guessed | tails.keys():
            if address + sizes[address] == first.address:
                tail = tails.get(address, 0) + first.room - first.size + 512
                if tail > 1 << 20:
                    return False
                tails[address] = tail
                return True
        return False

    def learn_private(self, trace: Sequence[TraceEntry], private: set[int]) -> bool:
        """Adds the events that gave back memory of private pools, as far as the run showed them; False if none.

        Before torch 2.10 a trace does not tell pools. Memory that was free and kept, although all cached memory was
        given back, belongs to a private pool: a CUDA graph's, say.
        """
        found = set()
        for address in self.kept:
            for at in range(self.kept_at, len(trace)):
                entry = trace[at]
                if entry.action in GIVES and 0 <= address - entry.address < entry.size:
                    if entry.pool is None:
                        found.add(at)
                    break
        new = found - private
        private |= new
        return bool(new)


@final
class ReplayRun:
    """One pass over a trace. The simulator acts by itself; the driver alone follows the record.

    Args:
        state: Where the trace began.
        trace: The events of one device, oldest first.
        conf: The settings under which they were recorded.
        tails: Sizes of unsplit tails that are known from runs before, by the address of their block.

    Attributes:
        sizes: The sizes of the blocks in use at the beginning, by address.
        guessed: Addresses of those whose size is a guess.
        lessons: What the first mismatch shows.
    """

    def __init__(self, state: AllocatorState, trace: Sequence[TraceEntry], conf: str, tails: dict[int, int]) -> None:
        self._trace = trace
        self._pools = state.pools
        self._config = AllocatorConfig.parse(conf)
        self.sizes, self.guessed = block_sizes(state, trace, self._config, tails)
        self._driver = RecordedDriver(address_space_bytes(state, trace), state.reserved_addresses.values())
        self._allocator = CachingAllocator.from_segments(
            segments_of_state(state, self.sizes),
            self._driver.total_bytes,
            conf,
            driver=self._driver,
            pending=True,
            on_event=self._on_event,
        )
        self._in_use = BlocksInUse(self._allocator, [block for block in state.blocks if block.address in self.sizes])
        self._pool_ids = {held.pool: held.pool for held in state.ranges}
        self._address_mismatches = self._segment_mismatches = self._retries = self._ooms = 0
        self._at = 0
        self.lessons = Lessons()
        self._let_go: set[PoolId] = set()
        self._retried = causes_of(trace).retried

    def replay(self, recorded_reserved_bytes: int) -> Replay:
        """Runs the whole trace; where it contradicts itself, up to there, and the rest counts as mismatches."""
        try:
            self._run()
        except (LookupError, TypeError, ValueError):
            self._address_mismatches += sum(entry.action == "alloc" for entry in self._trace[self._at :]) + 1
        stats = self._allocator.stats()
        reserved = stats["reserved_bytes.all.current"]
        mismatches = self._address_mismatches + self._segment_mismatches
        return Replay(
            exact=mismatches == 0 and reserved == recorded_reserved_bytes,
            events=len(self._trace),
            address_mismatches=self._address_mismatches,
            segment_mismatches=self._segment_mismatches,
            reserved_bytes=reserved,
            recorded_reserved_bytes=recorded_reserved_bytes,
            reserved_peak_bytes=stats["reserved_bytes.all.peak"],
            allocated_peak_bytes=stats["allocated_bytes.all.peak"],
            num_alloc_retries=self._retries,
            num_ooms=self._ooms,
        )

    def _run(self) -> None:
        calls: list[int] = []  # events whose cause comes after them: of segments, and of blocks that waited
        for at, entry in enumerate(self._trace):
            self._at = at
            action = entry.action
            if action == "alloc" or action == "oom":
                self._malloc(at, calls)
                calls = []
            elif action == "free_requested":
                if calls and not self._takes(calls):
                    self._release(calls)
                    calls = []
                self._free(at)
            elif action.startswith("segment_") or (
                action == "free_completed" and not self._completes(at - 1, entry.address)
            ):
                calls.append(at)
        if calls:
            self._release(calls)

    def _note_kept(self, at: int) -> None:
        if self._address_mismatches == self._segment_mismatches == 0:
            self.lessons.kept, self.lessons.kept_at = self._driver.unrecorded_releases(), at
        self._segment_mismatches += self._driver.mismatches()

    def _on_event(self, action: str, address: int, size: int, stream: int) -> None:
        if action.startswith("segment_"):
            self._driver.saw((action, address, size, stream))

    # ---- allocations

    def _malloc(self, at: int, calls: list[int]) -> None:
        """Allocates as an event did, after events whose cause it may be."""
        entry, pool = self._trace[at], self._pool(self._pools[at])
        failed = entry.action == "oom"
        if at in self._retried:
            self._retries += 1
        calls = self._settle(at, calls, pool)
        # A capture never gives memory back, and a trace tells of captures only by what does not happen.
        capturing = failed and not calls and pool != DEFAULT_POOL
        if failed and not capturing:
            self._retries += 1
        self._driver.expect(
            [self._trace[call] for call in calls],
            out_of_memory=failed,
            mapped_next=self._mapped_from(calls[0] if calls else at, at),
        )
        address = self._try_malloc(entry, pool, capturing=capturing)
        self._note_kept(at)
        self._complete_all(calls)
        if address != (None if failed else entry.address):
            self._miss(address, entry)
        if address is None:
            self._ooms += failed
        elif failed:
            self._allocator.free(address)
        else:
            self._in_use.held[entry.address] = address

    def _try_malloc(self, entry: TraceEntry, pool: PoolId, *, capturing: bool) -> int | None:
        if capturing:
            self._allocator.begin_capture()
        try:
            return self._allocator.malloc(entry.size, entry.stream, pool)
        except OutOfMemory:  # may be what was recorded too: the caller compares
            return None
        finally:
            if capturing:
                self._allocator.end_capture()

    def _settle(self, at: int, calls: list[int], pool: PoolId) -> list[int]:
        """Does what happened before an allocation began; returns the events that it caused itself."""
        entry = self._trace[at]
        failed = entry.action == "oom"
        taken = next((i for i, call in enumerate(calls) if self._trace[call].action in TAKES), len(calls))
        released, calls = calls[:taken], calls[taken:]
        gave = any(self._trace[call].action in GIVES for call in released)
        if gave and (not (calls or failed) or self._allocator.has_cached(entry.size, entry.stream, pool)):
            self._release(released)  # no allocation fails that the cache can serve: it was empty_cache
        elif gave and self._config.garbage_collection_threshold > 0 and not self._releases_all(released):
            self._collect(released)
        elif not (gave or failed) or not self._completes_all(released):
            self._complete_all(released)  # what had waited was found done before anything was tried
            calls = [call for call in released if self._trace[call].action in GIVES] + calls
        else:
            calls = released + calls
        if gave:
            self._release_pools(released)
        return calls

    def _mapped_from(self, begin: int, at: int) -> Iterator[int]:
        """Where pages are mapped from an event on for requests like another event's: by stream, pool and kind."""
        entry, pool = self._trace[at], self._pools[at]
        small = self._config.round_size(entry.size) <= SMALL_BYTES
        for later in range(begin, len(self._trace)):
            other = self._trace[later]
            if (
                other.action == "segment_map"
                and other.stream == entry.stream
                and self._pools[later] == pool
                and (other.size == SMALL_SEGMENT_BYTES) == small
            ):
                yield other.address

    def _miss(self, address: int | None, entry: TraceEntry) -> None:
        self._address_mismatches += 1
        if self.lessons.misplaced is None:
            size = self._config.round_size(entry.size)
            self.lessons.misplaced = Misplaced(address or 0, self._room_at(address or 0), size)

    def _room_at(self, address: int) -> int:
        """The size that the free block at an address had before it was taken."""
        for segment in self._allocator.snapshot()["segments"]:
            blocks = segment["blocks"]
            for block, behind in zip(blocks, [*blocks[1:], None], strict=True):
                if block["address"] == address:
                    free_behind = behind["size"] if behind and behind["state"] == INACTIVE else 0
                    return int(block["size"] + free_behind)
        return 0

    def _pool(self, recorded: PoolId) -> PoolId:
        if recorded == DEFAULT_POOL:
            return DEFAULT_POOL
        if recorded not in self._pool_ids:
            self._pool_ids[recorded] = self._allocator.create_pool()
        return self._pool_ids[recorded]

    # ---- frees

    def _free(self, at: int) -> None:
        address = self._trace[at].address
        done = at + 1 < len(self._trace) and self._completes(at, self._trace[at + 1].address)
        self._in_use.free(address, done=done and self._trace[at + 1].action == "free_completed")

    def _completes(self, at: int, address: int) -> bool:
        """Whether the event asks for the block at this address to be freed."""
        return at >= 0 and self._trace[at].action == "free_requested" and self._trace[at].address == address

    def _completes_all(self, calls: list[int]) -> bool:
        """Whether nothing waits any more after these events: the allocator waits for everything before it gives up."""
        completed = {self._trace[call].address for call in calls if self._trace[call].action == "free_completed"}
        return completed >= self._in_use.waiting.keys()

    def _complete_all(self, calls: list[int]) -> None:
        """Ends the wait of the blocks that these events name, as far as the simulator has not done so by itself."""
        for call in calls:
            if self._trace[call].action == "free_completed":
                self._in_use.complete(self._trace[call].address)

    # ---- memory given back

    def _takes(self, calls: list[int]) -> bool:
        return any(self._trace[call].action in TAKES for call in calls)

    def _releases_all(self, released: list[int]) -> bool:
        """Whether all segments that could be given back were, which a garbage collection does not do."""
        freed = {self._trace[call].address for call in released if self._trace[call].action in GIVES}
        return freed >= {
            segment["address"]
            for segment in self._allocator.snapshot()["segments"]
            if segment["segment_pool_id"] == DEFAULT_POOL
            and not segment["is_expandable"]
            and not any(block["state"] == ACTIVE for block in segment["blocks"])
        }

    def _release(self, calls: list[int]) -> None:
        """Does what ``empty_cache`` does, for these events; if they only end waits, that."""
        if not any(self._trace[call].action in GIVES for call in calls):
            self._complete_all(calls)
            return
        pools = self._release_pools(calls)
        self._driver.expect([self._trace[call] for call in calls])
        if len(pools) == 1 and DEFAULT_POOL not in pools:
            self._allocator.empty_cache(pools.pop())
        else:
            self._allocator.empty_cache()
        self._note_kept(calls[-1] + 1)
        self._complete_all(calls)

    def _release_pools(self, calls: list[int]) -> set[PoolId]:
        """Lets the private pools go whose segments were given back; they must have been released by then."""
        pools = {self._pool(self._pools[call]) for call in calls if self._trace[call].action != "free_completed"}
        for pool in pools - {DEFAULT_POOL} - self._let_go:
            self._allocator.release_pool(pool)
            self._let_go.add(pool)
        return pools

    def _collect(self, calls: list[int]) -> None:
        """Gives back what the garbage collector chose; by which limit, no trace tells."""
        self._driver.expect([self._trace[call] for call in calls])
        for call in calls:
            entry = self._trace[call]
            if entry.action == "free_completed":
                self._in_use.complete(entry.address)
                continue
            try:
                self._allocator.release_segment(entry.address)
            except KeyError:
                pass  # ours has no such segment: counted as a mismatch below
        self._segment_mismatches += self._driver.mismatches()


# A recorded trace through the simulated allocator: does it do what PyTorch's did, to the byte?

_MAX_ATTEMPTS: Final = 64


def replay(snapshot: Snapshot, device: int) -> Replay:
    """One device's trace through the simulated allocator, from the state in which the trace began.

    Raises:
        SnapshotError: The trace and the segments contradict each other from the beginning.
    """
    trace = snapshot.trace_of(device)
    segments = snapshot.segments_of(device)
    conf = recorded_conf(snapshot.settings)
    config = AllocatorConfig.parse(conf)
    recorded_reserved = sum(segment.size for segment in segments)
    tails: dict[int, int] = {}
    private: set[int] = set()
    best: Replay | None = None
    for _ in range(_MAX_ATTEMPTS):
        try:
            run = ReplayRun(state_before(segments, trace, config, private=private), trace, conf, tails)
        except (LookupError, TypeError, ValueError):
            raise SnapshotError(f"the trace of device {device} contradicts its segments, so it has no state") from None
        result = run.replay(recorded_reserved)
        if best is None or _distance(result) < _distance(best):
            best = result
        lessons = run.lessons
        if result.exact or not (
            lessons.learn_private(trace, private) or lessons.learn_tail(run.sizes, run.guessed, tails)
        ):
            break
    assert best is not None
    return best


def _distance(result: Replay) -> int:
    return result.address_mismatches + result.segment_mismatches
