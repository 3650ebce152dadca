"""A container that learning waits for is told again once it is far longer than what its length is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch import nn

from memguard.evidence.kept.scans import ScansProbe
from memguard.records.facts import KeptOnHost
from tests.evidence.loop import Loop


class Replay:
    """A memory without an end, and one that forgets."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.recent: list[Any] = []

    def add(self) -> None:
        self.seen.append((np.zeros(16_384, np.uint8), 1))

    def renew(self) -> None:
        self.recent.append((np.zeros(16_384, np.uint8), 1))
        if len(self.recent) > 100:
            self.recent.pop(0)

    def is_warm(self) -> bool:
        return len(self.seen) > 60


@pytest.mark.parametrize(("method", "holder", "limited"), [("add", "seen", [True, False]), ("renew", "recent", [True])])
def test_a_memory_that_outgrows_what_learning_waits_for_has_no_limit(
    method: str, holder: str, limited: list[bool]
) -> None:
    """``len(memory) > 60`` may be its limit until there are 120; what forgets is told once."""
    replay, model = Replay(), nn.Linear(2, 2)
    with Loop(model, kinds=[ScansProbe]) as loop:
        for _ in loop.batches(60):
            for _ in range(4):
                getattr(replay, method)()
    facts = [fact for fact in loop.of(KeptOnHost) if fact.place.holder == f"Replay.{holder}"]
    assert [fact.bounded for fact in facts] == limited
