"""What the tests of circles share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """No test finds the garbage of another one."""
    gc.collect()
    yield
    gc.enable()
    gc.collect()
