"""Views that begin to pin storages long after the first batches."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from memguard.evidence.kept.incremental_scan import APART
from memguard.evidence.kept.scans import ScansProbe
from memguard.evidence.sampling_budget import LOOKS
from memguard.records.facts import ViewsPinStorage
from tests.evidence.loop import Loop


def test_views_are_looked_for_where_the_floor_rises_and_told_again_when_they_are_twice_as_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the batch from which on it rose, by which the rate is known."""
    monkeypatch.setattr("memguard.heap.walk.is_user_module_name", lambda name: False)
    rows: list[torch.Tensor] = []
    with Loop(nn.Linear(2, 2), kinds=[ScansProbe]) as loop:
        for _ in loop.batches(60):
            pass
        for rise, since in ((1, 0), (2, 50)):
            rows += [torch.zeros(64, 1024)[3] for _ in range(4 * rise)]
            loop.watch.rose, loop.watch.rises_since = loop.batch, since
            loop.watch.look_closely(LOOKS, surely=True)
            for _ in loop.batches(APART + 8):
                pass
    first, later = loop.of(ViewsPinStorage)
    assert (first.views, later.views) == (4, 12) == (len(rows) - 8, len(rows))
    assert first.place == later.place and (first.since, later.since) == (0, 50)
