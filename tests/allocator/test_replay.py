from __future__ import annotations

import random
from pathlib import Path

import pytest

from memguard.allocator.config import AllocatorConfig
from memguard.allocator.replay import recorded_conf, replay, what_if
from memguard.allocator.replay.causes import causes_of
from memguard.allocator.replay.driver import RecordedDriver
from memguard.allocator.replay.state import state_before
from memguard.allocator.snapshot import Block, Frame, Segment, Snapshot, TraceEntry
from memguard.errors import SnapshotError
from tests.allocator.recorded import COMMITTED, SHARED, committed, load

MIB = 1 << 20


def entry(action: str, address: int, size: int, line: int | None = None) -> TraceEntry:
    stack = () if line is None else (Frame("/home/user/train.py", line, "main"),)
    return TraceEntry(action, address, size, 0, None, None, None, stack)


def segment(address: int, *blocks: tuple[int, str]) -> Segment:
    made, at = [], address
    for size, state in blocks:
        made.append(Block(at, size, size, state, ()))
        at += size
    return Segment(0, address, at - address, 0, False, False, (0, 0), tuple(made))


@pytest.mark.parametrize("path", [*COMMITTED, *SHARED], ids=lambda path: path.name.partition(".")[0])
def test_recorded_traces_replay_exactly(path: Path) -> None:
    """Every address, every segment event and the reserved bytes at the end come out as PyTorch recorded them."""
    snapshot = load(path)
    for device in snapshot.devices:
        result = replay(snapshot, device)
        assert (result.address_mismatches, result.segment_mismatches) == (0, 0)
        assert result.exact
        assert result.reserved_bytes == sum(segment.size for segment in snapshot.segments_of(device))
        assert result.events == len(snapshot.trace_of(device))


@pytest.mark.parametrize(
    ("name", "allocations", "segments", "reserved_mib", "peak_mib"),
    [("attention-whole-process", 36, 9, 3606.0, 3098.6), ("lm-2.7b-ctx512-train", 6769, 589, 59920.0, None)],
)
def test_known_figures_come_out(
    name: str, allocations: int, segments: int, reserved_mib: float, peak_mib: float | None
) -> None:
    """Counts, reserved bytes and the allocated peak of files whose figures are known."""
    paths = [path for path in SHARED if path.stem == name]
    if not paths:
        pytest.skip("no recorded snapshots of real GPUs here")
    snapshot = load(paths[0])
    actions = [event.action for event in snapshot.trace_of(0)]
    result = replay(snapshot, 0)
    assert (actions.count("alloc"), actions.count("segment_alloc")) == (allocations, segments)
    assert result.reserved_bytes / MIB == reserved_mib
    if peak_mib is not None:
        assert round(result.allocated_peak_bytes / MIB, 1) == peak_mib


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.name.partition(".")[0])
def test_traces_that_do_not_tell_pools_replay_exactly(path: Path) -> None:
    """Before torch 2.10 a trace told no pools; private ones show in what an emptied cache keeps."""
    snapshot = load(path)
    trace = tuple(event._replace(pool=None) for event in snapshot.traces[0])
    assert replay(snapshot._replace(traces=(trace,)), 0).exact


def test_a_trace_that_contradicts_itself_is_not_exact() -> None:
    """Events that no allocator can have caused end in mismatches or a refusal, never in a crash."""
    chance = random.Random(3)
    snapshot = committed("graphs")
    for _ in range(25):
        trace = list(snapshot.traces[0][: chance.randint(5, 200)])
        for _ in range(3):
            at, other = chance.randrange(len(trace)), chance.choice(trace)
            trace[at] = chance.choice(
                [trace[at]._replace(address=other.address), trace[at]._replace(action=other.action)]
            )
        changed = snapshot._replace(traces=(tuple(trace),))
        try:
            assert replay(changed, 0).events == len(trace)
        except SnapshotError:
            pass


def test_a_changed_trace_is_not_exact() -> None:
    """An address that the allocator would not have given is a mismatch, and later frees of it still work."""
    snapshot = committed("streams")
    trace = list(snapshot.traces[0])
    at = next(i for i, event in enumerate(trace) if event.action == "alloc" and event.size > 20 * MIB)
    moved = trace[at].address + 512
    for later in range(at, len(trace)):
        if trace[later].address == trace[at].address and later > at:
            trace[later] = trace[later]._replace(address=moved)
            if trace[later].action == "free_completed":
                break
    trace[at] = trace[at]._replace(address=moved)
    result = replay(snapshot._replace(traces=(tuple(trace),)), 0)
    assert not result.exact
    assert result.address_mismatches >= 1


def test_a_missing_segment_event_is_a_mismatch() -> None:
    """A segment that the record does not show being taken is counted."""
    segments = (segment(1 << 30, (20 * MIB, "active_allocated")),)
    trace = (entry("segment_alloc", 1 << 30, 20 * MIB), entry("alloc", 1 << 30, 20 * MIB))
    assert replay(Snapshot(segments, (trace,), {}, ()), 0).exact
    shorter = Snapshot((), ((entry("alloc", 1 << 30, 20 * MIB),),), {}, ())
    assert replay(shorter, 0).segment_mismatches == 1


def test_the_state_at_the_beginning_is_found_backwards() -> None:
    """What was freed later was in use, and what was made later was not there."""
    base = 1 << 30
    segments = (segment(base, (4 * MIB, "active_allocated"), (16 * MIB, "inactive")),)
    trace = (
        entry("free_requested", base + 8 * MIB, 12 * MIB),
        entry("free_completed", base + 8 * MIB, 12 * MIB),
        entry("segment_free", 2 << 30, 30 * MIB),
        entry("segment_alloc", 3 << 30, 20 * MIB),
    )
    state = state_before((*segments, segment(3 << 30, (20 * MIB, "inactive"))), trace, AllocatorConfig())
    assert [(held.address, held.size) for held in state.ranges] == [(base, 20 * MIB), (2 << 30, 30 * MIB)]
    assert [(block.address, block.requested_size) for block in state.blocks] == [
        (base, 4 * MIB),
        (base + 8 * MIB, 12 * MIB),
    ]


def test_a_tail_is_seen_by_the_allocation_behind_it() -> None:
    """A block larger than what was asked shows in where the free block behind it begins."""
    base, tail = 1 << 30, 300 * 1024
    first, second = base + 4 * MIB + tail, 6 * MIB
    segments = (
        segment(base, (4 * MIB + tail, "inactive"), (second, "active_allocated"), (10 * MIB - tail, "inactive")),
    )
    trace = (
        entry("alloc", first, second),
        entry("free_requested", base, 4 * MIB),
        entry("free_completed", base, 4 * MIB),
    )
    assert replay(Snapshot(segments, (trace,), {}, ()), 0).exact


def test_an_allocation_that_gave_memory_back_is_a_retry_and_empty_cache_is_not() -> None:
    """One stack for what was given back and what was allocated: a retry; two stacks: ``empty_cache``."""
    gave = entry("segment_free", 1 << 30, 20 * MIB, 1)
    took = [entry("segment_alloc", 2 << 30, 40 * MIB, 1), entry("alloc", 2 << 30, 40 * MIB, 1)]
    assert causes_of([gave, *took]).retried == {2}
    emptied = causes_of([gave._replace(stack=(Frame("/home/user/train.py", 9, "main"),)), *took])
    assert (emptied.retried, emptied.emptied) == (frozenset(), {2})
    assert causes_of([gave]).emptied == {1}


def test_without_stacks_only_what_could_fail_is_a_retry() -> None:
    """Memory given back while less was reserved than at another time was not given back in need."""
    more = [entry("segment_alloc", 5 << 30, 400 * MIB), entry("alloc", 5 << 30, 400 * MIB)]
    gave = entry("segment_free", 1 << 30, 20 * MIB)
    took = [entry("segment_alloc", 2 << 30, 40 * MIB), entry("alloc", 2 << 30, 40 * MIB)]
    assert causes_of([gave, *took]).retried == {2}
    assert causes_of([gave, *took, *more]).retried == frozenset()


def test_the_driver_refuses_while_memory_is_still_to_be_given_back() -> None:
    """A recorded release says that the driver had refused."""
    driver = RecordedDriver()
    driver.expect([entry("segment_free", 64, 2 * MIB), entry("segment_alloc", 128, 4 * MIB)])
    assert driver.malloc(4 * MIB) is None
    driver.saw(("segment_free", 64, 2 * MIB, 0))
    assert driver.malloc(4 * MIB) == 128
    assert driver.mismatches() == 1
    driver.saw(("segment_alloc", 128, 4 * MIB, 0))
    assert driver.mismatches() == 0


def test_the_recorded_settings_become_a_configuration() -> None:
    """The parsed settings count, the text only where they are silent."""
    settings = committed("roundup").settings
    config = AllocatorConfig.parse(recorded_conf(settings))
    assert config.roundup_power2_divisions == (8, 8, 8, 8, 8, 0, 2, 0, 1, 4, 4, 4, 4, 4, 4, 4)
    assert AllocatorConfig.parse(recorded_conf(committed("max-split").settings)).max_split_bytes == 64 * MIB
    assert recorded_conf({"roundup_power2_divisions": {"x": "y"}, "max_split_size": "no"}) == ""


def test_without_a_change_the_hypothetical_replay_is_the_recorded_one() -> None:
    """The same configuration on a card without limit gives the recorded peak where memory never ran out."""
    snapshot = committed("leak")
    recorded, other = replay(snapshot, 0), what_if(snapshot, 0)
    assert (other.reserved_peak_bytes, other.num_ooms) == (recorded.reserved_peak_bytes, 0)
    assert other.reserved_bytes == recorded.reserved_bytes


def test_a_larger_card_does_not_run_out() -> None:
    """On a card with room for all of it, nothing fails and nothing is retried."""
    snapshot = committed("streams")
    assert replay(snapshot, 0).num_ooms > 0
    other = what_if(snapshot, 0, capacity_bytes=64 << 30)
    assert (other.num_ooms, other.num_alloc_retries, other.first_oom) == (0, 0, None)


def test_a_smaller_card_runs_out_and_names_the_line() -> None:
    """Where memory runs out first, and who asked."""
    other = what_if(committed("leak"), 0, capacity_bytes=24 * MIB)
    assert other.num_ooms > 0
    assert other.first_oom is not None
    assert 0 <= other.first_oom.event < 889
    assert "train.py" in other.first_oom.where or "no stack" in other.first_oom.where


def test_expandable_segments_need_less() -> None:
    """The question people ask: what would expandable segments have reserved?"""
    snapshot = committed("streams")
    wide = what_if(snapshot, 0, capacity_bytes=64 << 30)
    expandable = what_if(snapshot, 0, conf="expandable_segments:True", capacity_bytes=64 << 30)
    assert expandable.reserved_peak_bytes < wide.reserved_peak_bytes
    assert expandable.allocated_peak_bytes <= expandable.reserved_peak_bytes


def test_a_wrong_configuration_is_refused() -> None:
    """The error names the key."""
    with pytest.raises(ValueError, match="nonsense"):
        what_if(committed("leak"), 0, conf="nonsense:1")
