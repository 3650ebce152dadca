"""The cache of pinned memory, looked at with made-up numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from memguard.evidence.host.processes import PinnedProbe
from memguard.records.facts import PinnedCacheGrows
from memguard.text.units import MIB
from tests.evidence.loop import Loop


@pytest.mark.parametrize(
    ("held", "told"),
    [
        (lambda batch: batch * MIB, [(64, 16)]),
        (lambda batch: min(batch, 20) * MIB, []),
        (lambda batch: 100 * MIB + batch * 1000, []),
        (lambda batch: batch * 1000, []),
    ],
    ids=["grows", "levels off", "hardly grows", "is small"],
)
def test_a_cache_that_grows_from_look_to_look_is_told(
    monkeypatch: pytest.MonkeyPatch, held: Callable[[int], int], told: list[tuple[int, int]]
) -> None:
    """Once, when it is twice what it was and more at each look."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(
        torch.cuda,
        "host_memory_stats",
        lambda: {"allocated_bytes.current": held(loop.watch.batches), "active_bytes.current": 1},
        raising=False,
    )
    with Loop(nn.Linear(2, 2), kinds=[PinnedProbe], device="cuda:0") as loop:
        for _ in loop.batches(200):
            pass
    assert [(fact.bytes // MIB, fact.before_bytes // MIB) for fact in loop.of(PinnedCacheGrows)] == told
