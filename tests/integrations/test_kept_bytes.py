from __future__ import annotations

from pathlib import Path

import pytest

import memguard
from tests.backends.virtual_gpu import virtual_gpu
from tests.integrations.kept_bytes import FOUND, Training


@pytest.mark.long
def test_nothing_is_kept_alive_by_looking_closely_at_every_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the byte what it is without memguard, in each batch and at its end, over 500 batches and after findings."""
    training = Training("cpu")
    with virtual_gpu() as gpu:
        expected = training.run(lambda: gpu.nbytes)
    training = Training("cpu")
    monkeypatch.setattr("memguard.evidence.sampling_budget.FIRST_BATCHES", 1 << 60)
    models = [training.student, training.teacher]
    with memguard.watch(models, device="virtual:1GiB", validation="warn", logdir=tmp_path, quiet=True) as guard:
        found = training.run(lambda: memguard.memory_allocated() or 0, lambda: guard.session.probes.active)
    assert training.looked == 500
    assert {finding.code for finding in guard.findings} >= FOUND
    assert found == expected
