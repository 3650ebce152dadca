"""The collector's calls."""

from __future__ import annotations

import gc
import logging
import signal
import time
from collections.abc import Iterator

import pytest

from memguard.evidence.cycles.collector_events import OnCollection

LIVE = 400_000
"""So many lists take the collector longer than the timer of the tests."""


@pytest.fixture
def alarm() -> Iterator[None]:
    """SIGALRM raises KeyboardInterrupt, by C, as Ctrl-C does; others who listen to the collector would lose it.

    SIGINT is handled too: a shell that starts the tests in the background has it ignored.
    """
    signals = signal.SIGALRM, signal.SIGINT
    before, others = [signal.signal(each, signal.default_int_handler) for each in signals], gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = others
    signal.setitimer(signal.ITIMER_REAL, 0)
    for each, handler in zip(signals, before, strict=True):
        signal.signal(each, handler)


def collect_until_interrupted() -> None:
    """The timer of the tests ends before the collection does."""
    patience = time.perf_counter() + 30
    with pytest.raises(KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, 0.003)
        gc.collect()
        while time.perf_counter() < patience:  # not one wait: a signal that another thread gets would not end it
            pass


def test_hears_start_and_stop_of_each_collection() -> None:
    """Phase and details come as the collector tells them, until it is removed."""
    heard: list[tuple[str, int]] = []
    ears = OnCollection(lambda phase, info: heard.append((phase, info["generation"])))
    ears.install()
    try:
        gc.collect(1)
        gc.collect(2)
    finally:
        ears.remove()
    gc.collect()
    assert heard == [("start", 1), ("stop", 1), ("start", 2), ("stop", 2)]


def test_a_ctrl_c_during_a_collection_arrives(alarm: None, capsys: pytest.CaptureFixture[str]) -> None:
    """The signal is handled by the first Python code after the collector's own: ours, and it is raised all the same."""
    live = [[number] for number in range(LIVE)]
    ears = OnCollection(lambda phase, info: None)
    ears.install()
    try:
        collect_until_interrupted()
    finally:
        ears.remove()
    assert "ignored" not in capsys.readouterr().err and len(live) == LIVE


def test_after_a_ctrl_c_a_collection_is_over(alarm: None) -> None:
    """Whatever it interrupted: nobody believes that the collector still runs."""
    heard: list[str] = []
    live = [[number] for number in range(LIVE)]
    ears = OnCollection(lambda phase, info: heard.append(phase))
    ears.install()
    try:
        collect_until_interrupted()
        assert heard[-1] == "stop"
        gc.collect()
    finally:
        ears.remove()
    assert heard[-2:] == ["start", "stop"] and len(live) == LIVE


def test_a_failure_is_logged_once_and_ends_the_calls(caplog: pytest.LogCaptureFixture) -> None:
    """The collector goes on, and nothing is printed about ignored exceptions."""
    calls: list[str] = []

    def heard(phase: str, info: dict[str, int]) -> None:
        calls.append(phase)
        raise ValueError("on purpose")

    ears = OnCollection(heard)
    ears.install()
    try:
        with caplog.at_level(logging.ERROR, "memguard"):
            gc.collect()
            gc.collect()
    finally:
        ears.remove()
    assert calls == ["start"] and len(caplog.records) == 1
