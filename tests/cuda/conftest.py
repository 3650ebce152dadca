"""Tests in this folder need torch's CUDA allocator; elsewhere they are skipped, each with the same reason."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parent
LIBRARIES_MAY_WARN = pytest.mark.filterwarnings("ignore::UserWarning")
"""Of contexts and plans: what a real driver and its libraries say, and a test does not ask."""
NEEDS_CUDA = pytest.mark.skip(reason="needs CUDA: run 'make test-cuda' for the null GPU")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test of this folder `cuda`, and skips it where there is no CUDA device."""
    available = torch.cuda.is_available()
    real = available and torch.cuda.get_device_name() != "Null GPU"
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.cuda)
            if real:
                item.add_marker(LIBRARIES_MAY_WARN)
            if not available:
                item.add_marker(NEEDS_CUDA)


@pytest.fixture(autouse=True)
def fresh_allocator() -> Iterator[None]:
    """Every test begins with an empty cache, peaks at what is allocated, and no memory history."""
    if torch.cuda.is_available():
        clean()
    yield
    if torch.cuda.is_available():
        clean()


@pytest.fixture
def fresh() -> Callable[[], None]:
    """Makes the allocator as at the beginning of the test, for the second of two twin runs."""
    return clean


def clean() -> None:
    """Nothing of earlier tests is kept or counted."""
    gc.collect()
    torch.cuda.memory._record_memory_history(enabled=None)
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch._C._cuda_clearCublasWorkspaces()  # until torch 2.14 they stay allocated for each thread and stream
    torch.cuda.empty_cache()
    torch.cuda.reset_accumulated_memory_stats()
    torch.cuda.reset_peak_memory_stats()
