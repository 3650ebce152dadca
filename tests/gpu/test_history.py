"""The allocation history on silicon: on once growth is suspected, off again, and the line is the right one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from memguard.records.facts import SurvivingAllocations
from tests.cuda import test_history as on_cuda
from tests.cuda.test_history import BATCHES, grow, hearing, here, is_on


def test_growth_names_the_line_and_the_history_goes_off_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is off at first, on for a few batches, and off when the run is over."""
    with hearing(monkeypatch) as facts:
        on = grow(tmp_path)
    assert not on[0] and any(on) and not on[-1] and not is_on()
    assert sum(on) < BATCHES // 2
    (fact, *_) = [fact for fact in facts if isinstance(fact, SurvivingAllocations)]
    assert (Path(fact.place.file or ""), fact.place.line) == (Path(on_cuda.__file__), here())


def test_the_history_that_a_user_began_goes_on(tmp_path: Path) -> None:
    """Theirs is neither replaced nor ended."""
    on_cuda.test_the_users_own_recording_goes_on(tmp_path)
    torch.cuda.memory._record_memory_history(enabled=None)
