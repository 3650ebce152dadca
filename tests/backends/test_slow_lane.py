import itertools
import logging
import os
import threading

import pytest

from memguard.backends.slow_lane import SlowLane
from memguard.records.stats import SlowStats


class Gate:
    """A wait that the test opens, turn by turn; it notes the seconds it was asked for."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.stopped = False
        self._waiting, self._go = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, seconds: float) -> bool:
        self.asked.append(seconds)
        self._waiting.release()
        self._go.acquire(timeout=60)
        return self.stopped

    def await_wait(self) -> None:
        """Returns when the lane waits."""
        assert self._waiting.acquire(timeout=60)

    def open(self) -> None:
        self._go.release()

    def end(self, lane: SlowLane) -> None:
        self.stopped = True
        self.open()
        lane.stop()


def test_it_reads_at_once_and_then_again_after_each_wait():
    """The first reading comes without a wait; the newest is what is told."""
    gate, numbers = Gate(), iter(range(1, 100))
    lane = SlowLane(lambda: SlowStats(open_files=next(numbers)), wait=gate)
    assert lane.newest() == SlowStats()
    lane.start()
    gate.await_wait()
    assert lane.newest().open_files == 1
    gate.open()
    gate.await_wait()
    assert lane.newest().open_files == 2
    assert gate.asked == [1.0, 1.0]
    gate.end(lane)
    assert not lane.running
    assert lane.newest().open_files == 2


def test_a_slow_reader_is_asked_less_often():
    """A reading of 200 ms is followed by a wait of 10 s: a fiftieth of a core at most."""
    gate, ticks = Gate(), iter([0.0, 0.2])
    lane = SlowLane(SlowStats, wait=gate, clock=lambda: next(ticks))
    lane.start()
    gate.await_wait()
    assert gate.asked == [pytest.approx(10.0)]
    gate.end(lane)


def pauses(count: int, reading: SlowStats, **options) -> list[float]:
    """What a lane waits after each of so many readings of 1 ms, one begun every 25 s."""
    gate, ticks = Gate(), (25.0 * (turn // 2) + 0.001 * (turn % 2) for turn in itertools.count())
    lane = SlowLane(lambda: reading, wait=gate, clock=lambda: next(ticks), **options)
    lane.start()
    for _ in range(count - 1):
        gate.await_wait()
        gate.open()
    gate.await_wait()
    gate.end(lane)
    return gate.asked


def test_after_the_first_minute_it_reads_more_rarely():
    """A reading of 1 ms every 5 s is a fiftieth of a percent of a core."""
    assert pauses(5, SlowStats()) == [1.0, 1.0, 1.0, pytest.approx(5.0), pytest.approx(5.0)]


@pytest.mark.parametrize(
    "reading",
    [
        SlowStats(host_used_bytes=90, host_limit_bytes=100),
        SlowStats(host_used_bytes=10, host_limit_bytes=100, shm_free_bytes=5, shm_total_bytes=100),
    ],
)
def test_where_memory_is_short_it_goes_on_as_at_first(reading: SlowStats):
    """Every second matters then."""
    assert pauses(5, reading) == [1.0] * 5


def test_it_goes_on_as_at_first_while_something_presses():
    """Who made the lane says so."""
    assert pauses(5, SlowStats(), presses=lambda newest: True) == [1.0] * 5


def test_a_failure_is_logged_once_and_ends_the_lane(caplog):
    """An exception in the reader never spreads; the last answer stays."""
    gate = Gate()
    answers = iter([SlowStats(open_files=7)])
    lane = SlowLane(lambda: next(answers), wait=gate)
    lane.start()
    gate.await_wait()
    thread = lane._thread
    with caplog.at_level(logging.WARNING, logger="memguard"):
        gate.open()
        assert thread is not None
        thread.join(60)
    assert not lane.running
    assert lane.newest().open_files == 7
    assert len(caplog.records) == 1
    assert "slow lane" in caplog.text
    lane.stop()


def test_start_and_stop_may_be_called_twice():
    """There is one thread at a time, a daemon, and it can be started again."""
    lane = SlowLane(SlowStats)
    lane.stop()
    lane.start()
    thread = lane._thread
    lane.start()
    assert thread is lane._thread and thread is not None and thread.daemon
    lane.stop()
    lane.stop()
    thread.join(60)
    assert not thread.is_alive()
    lane.start()
    assert lane.running
    lane.stop()


def test_stop_does_not_wait_for_a_reader_that_hangs():
    """A driver that hangs does not keep the training from ending."""
    hang = threading.Event()
    reading = threading.Event()

    def read() -> SlowStats:
        reading.set()
        hang.wait(60)
        return SlowStats()

    lane = SlowLane(read)
    lane.start()
    assert reading.wait(60)
    thread = lane._thread
    lane.stop()
    assert thread is not None and thread.is_alive()
    hang.set()
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_has_the_last_answer_and_no_thread():
    """A DataLoader worker does not inherit the lane."""
    gate = Gate()
    lane = SlowLane(lambda: SlowStats(open_files=7), wait=gate)
    lane.start()
    gate.await_wait()
    child = os.fork()
    if child == 0:
        fine = not lane.running and lane.newest().open_files == 7
        lane.stop()
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert lane.running
    gate.end(lane)


def test_whoever_looks_after_threads_can_stop_it():
    """As test suites do with a daemon thread that a test left: they call its ``stop``."""
    lane = SlowLane(SlowStats)
    lane.start()
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "memguard-slow-lane"]
    assert thread.daemon
    thread.stop()
    assert not thread.is_alive() and not lane.running


def test_an_errand_that_fails_is_dropped_and_the_readings_go_on(caplog: pytest.LogCaptureFixture) -> None:
    """Its failure is logged once; the others stay."""
    gate, done, numbers = Gate(), [], iter(range(1, 100))

    def fail() -> None:
        raise LookupError("no such thing")

    lane = SlowLane(lambda: SlowStats(open_files=next(numbers)), wait=gate, errands=[fail, lambda: done.append(1)])
    lane.start()
    gate.await_wait()
    gate.open()
    gate.await_wait()
    assert (done, lane.newest().open_files) == ([1, 1], 2)
    assert caplog.text.count("LookupError: no such thing") == 1
    gate.end(lane)


def test_errands_run_after_each_reading_and_do_not_make_readings_rarer():
    """An errand of many seconds is followed by the ordinary wait, and outlives a reader that failed."""
    gate, done = Gate(), []

    def read() -> SlowStats:
        if done:
            raise OSError("the driver is gone")
        return SlowStats(open_files=1)

    lane = SlowLane(read, wait=gate, errands=[lambda: done.append("sent")])
    lane.start()
    gate.await_wait()
    assert done == ["sent"]
    gate.open()
    gate.await_wait()
    assert done == ["sent", "sent"] and lane.newest().open_files == 1 and gate.asked == [1.0, 1.0]
    gate.end(lane)


def test_what_cannot_say_whether_something_presses_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The errands go on, and nothing of it is asked again."""
    gate, done = Gate(), []

    def presses(stats: SlowStats) -> bool:
        raise RuntimeError("planted")

    lane = SlowLane(SlowStats, wait=gate, errands=[lambda: done.append("sent")], presses=presses)
    lane.start()
    for turn in range(3):
        gate.await_wait()
        assert len(done) == turn + 1
        gate.open()
    gate.await_wait()
    gate.end(lane)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
