"""The eight causes again, on real silicon: what the libraries take there is in the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.cuda import test_oom as on_cuda
from tests.cuda.conftest import clean
from tests.postmortem import scenarios

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore::UserWarning"),  # of contexts and plans, by the driver and its libraries
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_name() == "Null GPU", reason="needs a GPU"
    ),
]


@pytest.fixture(autouse=True)
def fresh_allocator() -> Iterator[None]:
    """As in tests/cuda."""
    clean()
    yield
    clean()


@pytest.mark.parametrize("name", scenarios.CAUSES)
def test_eight_causes(name: str, tmp_path: Path) -> None:
    """The report names the cause, the owners add up, and the first advice, applied, makes the run fit."""
    on_cuda.test_eight_causes(name, tmp_path)
