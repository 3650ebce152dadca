"""Tests in this folder need real silicon; elsewhere they are skipped, each with the same reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.gpu import card

FOLDER = Path(__file__).parent
NEEDS_GPU = pytest.mark.skip(reason="needs a real GPU (on the null GPU: MEMGUARD_GPU_REHEARSAL=1)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks every test of this folder `gpu`, and skips it where there is none."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.filterwarnings("ignore"))  # what torch and its friends say on a new card
            if not card.IS_REAL and not (card.REHEARSES and torch.cuda.is_available()):
                item.add_marker(NEEDS_GPU)


@pytest.fixture(autouse=True)
def fresh_allocator() -> Iterator[None]:
    """Every test begins and ends with an allocator that holds nothing."""
    if torch.cuda.is_available():
        card.clean()
    yield
    if torch.cuda.is_available():
        card.clean()


@pytest.fixture
def fresh() -> Callable[[], None]:
    """Makes the allocator as at the beginning of the test, for the second of two twin runs."""
    return card.clean
