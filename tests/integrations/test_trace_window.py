from __future__ import annotations

from memguard.integrations.trace_window import BATCHES, REST, TraceWindow
from memguard.records.stats import BatchRecord, Stage

GIB = 1 << 30


def record(number: int, reserved: float, used: float, retries: int = 0) -> BatchRecord:
    return BatchRecord(
        batch=number,
        stage=Stage.TRAIN,
        time=0.0,
        seconds=0.1,
        reserved_peak_bytes=int(reserved * GIB),
        active_peak_bytes=int(used * GIB),
        num_alloc_retries=retries,
    )


def test_quiet_far_from_the_limit() -> None:
    """Neither a half-empty device nor a full one in one piece is worth a history."""
    window = TraceWindow()
    assert not any(window.wants_history(record(i, 5, 2), 10 * GIB) for i in range(100))
    assert not any(window.wants_history(record(i, 9.5, 9.4), 10 * GIB) for i in range(100))


def test_windows_are_short_and_grow_rarer() -> None:
    """A device that stays in pieces is recorded for 32 batches, then for 32 of the next 256, then of 512."""
    window = TraceWindow()
    on = [window.wants_history(record(i, 9, 7), 10 * GIB) for i in range(2000)]
    assert on[:BATCHES] == [True] * BATCHES
    assert not any(on[BATCHES : BATCHES + REST])
    assert 2 * BATCHES <= sum(on) <= 4 * BATCHES


def test_a_retry_opens_a_window_at_once() -> None:
    """Even in the rest after another, for the next error may be for good."""
    window = TraceWindow()
    for number in range(BATCHES + 10):
        window.wants_history(record(number, 9, 7), 10 * GIB)
    assert not window.wants_history(record(50, 9, 7), 10 * GIB)
    assert window.wants_history(record(51, 9, 7, retries=1), 10 * GIB)
    assert window.since == 52
    assert window.wants_history(record(52, 9, 7), 10 * GIB)
