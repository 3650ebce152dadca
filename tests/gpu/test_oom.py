"""The eight causes again, on real silicon: what the libraries take there is in the numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cuda import test_oom as on_cuda
from tests.postmortem import scenarios


@pytest.mark.parametrize("name", scenarios.CAUSES)
def test_eight_causes(name: str, tmp_path: Path) -> None:
    """The report names the cause, the owners add up, and the first advice, applied, makes the run fit."""
    on_cuda.test_eight_causes(name, tmp_path)
