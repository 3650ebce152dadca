"""Clocks that a test cannot patch."""

from __future__ import annotations

import importlib
import time
from unittest import mock

from memguard import clocks


def test_a_patched_clock_is_not_ours() -> None:
    """Not even where it was patched before memguard is imported."""
    with mock.patch("time.perf_counter", side_effect=[]), mock.patch("time.time", return_value=5.0):
        fresh = importlib.reload(clocks)
        assert fresh.now() > 1e9
        assert fresh.perf_counter() < fresh.perf_counter()
        assert time.time() == 5.0
    assert abs(time.perf_counter() - clocks.perf_counter()) < 10
