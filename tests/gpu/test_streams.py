"""MG404 with a copying stream that is really behind: what is freed meanwhile waits for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

import memguard
from memguard.integrations.guard import Guard
from tests.gpu.card import IS_REAL, block, keep_busy, total_bytes

BATCHES, MOST_BEHIND = 40, 2
SHARE = 0.11
"""Of the card that each batch copies from: the rule asks for a tenth that waits."""
COPY_SECONDS = 0.05


def copies(logdir: Path, *, records: bool) -> Guard:
    """Batches whose source is copied on another stream; who frees it waits for the copy by event, or records it."""
    size, side = int(SHARE * total_bytes()), torch.cuda.Stream()
    target, behind = block(1024), []
    with memguard.watch(device="cuda:0", logdir=logdir, quiet=True) as guard:
        for _ in guard.batches(range(BATCHES)):
            source = block(size)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                keep_busy(COPY_SECONDS)
                target.copy_(source[:1024], non_blocking=True)
                copied = side.record_event()
            if records:
                source.record_stream(side)
            else:
                torch.cuda.current_stream().wait_event(copied)
            del source
            behind.append(copied)
            if len(behind) > MOST_BEHIND:
                behind.pop(0).synchronize()
    side.synchronize()
    return guard


@pytest.mark.skipif(not IS_REAL and "NULLGPU_PENDING" not in os.environ, reason="the null GPU needs NULLGPU_PENDING=1")
def test_memory_that_waits_for_a_busy_stream_is_told(tmp_path: Path) -> None:
    """With the bytes that wait: those of one to three batches, which nobody holds any more."""
    guard = copies(tmp_path, records=True)
    found = [finding for finding in guard.findings if finding.code == "MG404"]
    gaps = [(record.active_peak_bytes or 0) - (record.allocated_peak_bytes or 0) for record in guard.records]
    assert len(found) == 1, (found, gaps)
    size = int(SHARE * total_bytes())
    assert found[0].bytes is not None and size <= found[0].bytes <= (MOST_BEHIND + 1.1) * size
    assert max(gaps) >= size


def test_a_stream_that_is_waited_for_holds_nothing(tmp_path: Path) -> None:
    """The same copies with an event in place of record_stream: active memory is what is allocated."""
    guard = copies(tmp_path, records=False)
    assert [finding.code for finding in guard.findings if finding.code == "MG404"] == []
    assert all(record.active_peak_bytes == record.allocated_peak_bytes for record in guard.records)
