"""The programs on which nothing was calibrated, on CUDA's own allocator."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.postmortem.unseen.trial import CASES, try_out

SCALE = 64
FITS = ("crops",)
"""What CUDA's operators need less for, so that it does not fail at this size."""


@pytest.mark.parametrize("name", [name for name in CASES if name not in FITS])
@pytest.mark.filterwarnings("ignore")
def test_unseen(name: str, tmp_path: Path) -> None:
    """The cause is named, the owners add up to what is allocated, and the first advice makes the run fit."""
    torch.cuda.init()
    try_out(CASES[name], tmp_path, "cuda:0", SCALE)
