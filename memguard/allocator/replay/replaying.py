"""A recorded trace through the simulated allocator: does it do what PyTorch's did, to the byte?"""

from __future__ import annotations

from typing import Final

from memguard.allocator.config import AllocatorConfig
from memguard.allocator.replay.recorded_conf import recorded_conf
from memguard.allocator.replay.result import Replay
from memguard.allocator.replay.run import ReplayRun
from memguard.allocator.replay.state import state_before
from memguard.allocator.snapshot import Snapshot
from memguard.errors import SnapshotError

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
