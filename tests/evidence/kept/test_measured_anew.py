"""What was reported is measured, and told, again as the run goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from memguard.evidence.kept.growing_names import GrowingNamesProbe
from memguard.evidence.kept.scans import ScansProbe
from memguard.records.facts import KeptOnHost, KeptOutputs
from tests.evidence.loop import Loop, record_of

SLOWLY = 40
"""Batches before it grows faster."""


@pytest.mark.parametrize("fast", [4, 0])
def test_a_list_that_grows_faster_than_was_told_is_told_with_the_new_rate(fast: int) -> None:
    """With all that it has by then, at the same place; where fewer come than at first, nothing is said of that."""
    kept: list[tuple[torch.Tensor, int]] = []
    with Loop(nn.Linear(2, 2), kinds=[ScansProbe, GrowingNamesProbe]) as loop:
        for index in loop.batches(160):
            loop.record = record_of(index, allocated_end_bytes=0)
            kept += [(torch.ones(256), index) for _ in range(fast if index >= SLOWLY else 1)]
    facts = loop.of(KeptOutputs)
    first, last = facts[0], facts[-1]
    assert first.bytes_per_batch == 1024 and last.bytes_per_batch == max(fast, 1) * 1024
    assert last.place == first.place and last.first_batch == first.first_batch
    assert last.bytes == last.tensors * 1024 and abs(last.bytes - len(kept) * 1024) <= 0.1 * len(kept) * 1024


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


def test_a_holder_that_does_not_grow_is_measured_ever_more_rarely() -> None:
    """A list that is as long after each roll-out costs a few walks, however long the run; one that grows costs more."""
    looks = {}
    for is_cleared in (True, False):
        kept: list[torch.Tensor] = []
        asked: set[int | None] = set()
        with Loop(nn.Linear(2, 2), kinds=[ScansProbe, GrowingNamesProbe]) as loop:
            for index in loop.batches(600):
                loop.record = record_of(index)
                if not is_cleared or index < SLOWLY:
                    kept.append(torch.ones(256))
                asked.add(loop.watch.due)
        assert loop.of(KeptOutputs)
        looks[is_cleared] = len(asked - {None, 0})
    assert 2 * looks[True] < looks[False]
