"""Nothing of the user's is kept alive, to the byte of the real allocator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import memguard
from tests.integrations.kept_bytes import FOUND, Training

pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore")]


def test_nothing_is_kept_alive_by_looking_closely_at_every_batch(
    fresh: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is allocated without memguard, in each batch and at its end, over 500 batches and after findings."""
    expected = Training("cuda").run(torch.cuda.memory_allocated)
    fresh()
    training = Training("cuda")
    monkeypatch.setattr("memguard.evidence.sampling_budget.FIRST_BATCHES", 1 << 60)
    models = [training.student, training.teacher]
    with memguard.watch(models, validation="warn", logdir=tmp_path, quiet=True) as guard:
        found = training.run(torch.cuda.memory_allocated, lambda: guard.session.probes.active)
    assert training.looked == 500
    assert {finding.code for finding in guard.findings} >= FOUND
    assert found == expected
