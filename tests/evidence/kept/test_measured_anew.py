"""What was told as kept is measured again where memory grows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from memguard.evidence.kept.scans import ScansProbe
from memguard.evidence.peaks.history import HistoryProbe
from memguard.records.facts import KeptOutputs
from memguard.records.stats import BatchRecord, Stage
from tests.evidence.loop import Loop

SLOWLY = 40
"""Batches before it grows faster."""


class FakeHistory:
    """Allocations of 300 bytes, which an allocator gives blocks of 512."""

    records_history = False

    def record_history(self, enabled: bool, max_entries: int) -> None:
        pass

    def snapshot(self) -> dict[str, Any]:
        frames = [{"filename": "/u/train.py", "line": 7, "name": "step"}]
        made = [{"action": "alloc", "addr": at, "size": 300, "frames": frames} for at in range(80)]
        return {"device_traces": [made]}


def facts_of(fast: int) -> list[KeptOutputs]:
    """Of a list that gets one element with each of the first batches, and so many with later ones."""
    kept: list[tuple[torch.Tensor, int]] = []
    with Loop(nn.Linear(2, 2), kinds=[ScansProbe, HistoryProbe], history=FakeHistory()) as loop:
        for index in loop.batches(100):
            kept += [(torch.ones(256), index) for _ in range(fast if index >= SLOWLY else 1)]
            end = 1000 * max(index - SLOWLY, 0)
            loop.record = BatchRecord(batch=index, stage=Stage.TRAIN, time=0.0, seconds=0.0, allocated_end_bytes=end)
    assert len(kept) == SLOWLY + fast * (100 - SLOWLY)
    return loop.of(KeptOutputs)


def test_a_list_that_grows_faster_than_was_told_is_told_with_the_new_rate() -> None:
    """In bytes of the allocator's blocks, with all that it has by then, at the same place."""
    first, later = facts_of(fast=4)
    assert first.bytes_per_batch == 1024
    assert later.bytes_per_batch == pytest.approx(4 * 1024 * 512 / 300)
    assert later.place == first.place and later.first_batch == first.first_batch
    assert later.tensors > 4 * first.tensors and later.bytes == later.tensors * 1024


def test_a_list_that_does_not_is_not_told_again() -> None:
    """Fewer come than in the first batches: there is nothing new to say."""
    assert len(facts_of(fast=0)) == 1
