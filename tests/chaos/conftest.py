"""After every test of this suite nothing of memguard's stands in torch or Python itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.left_behind import in_process


@pytest.fixture(autouse=True)
def nothing_of_ours_in_the_process(nothing_left_behind: None) -> Iterator[None]:
    """Beside what every test is asked for: no patched function, no entry in a table of hooks, no signal handler."""
    yield
    assert in_process() == []
