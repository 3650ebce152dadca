"""A share of the card for this process: real retries of the allocator, and growth that would reach the limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import memguard
from memguard.integrations.guard import Guard
from memguard.records.findings import Finding, Severity
from tests.gpu.card import block, line_of, total_bytes

SHARE = 0.05
BATCHES = 140


@pytest.fixture
def room() -> Iterator[int]:
    """What is left to this process, in bytes."""
    torch.cuda.init()
    torch.cuda.set_per_process_memory_fraction(SHARE)
    yield int(SHARE * total_bytes())
    torch.cuda.set_per_process_memory_fraction(1.0)


def of(guard: Guard, code: str) -> list[Finding]:
    return [finding for finding in guard.findings if finding.code == code]


def test_an_allocator_that_lives_on_retries_is_told(room: int, tmp_path: Path) -> None:
    """Each batch asks for a little more than is cached, so the cache is flushed in each."""
    kept = block(int(0.6 * room))
    with memguard.watch(device="cuda:0", logdir=tmp_path, quiet=True) as guard:
        for number in guard.batches(range(20)):
            block(int((0.25 + 0.005 * number) * room))
    retries = torch.cuda.memory_stats()["num_alloc_retries"]
    assert retries >= 15 and kept.nbytes > 0
    assert sum(record.num_alloc_retries or 0 for record in guard.records) == retries
    (found, *_) = of(guard, "MG402") or [None]
    assert found is not None, guard.findings
    assert found.severity is Severity.CRITICAL


def test_growth_is_told_before_it_reaches_the_limit(room: int, tmp_path: Path) -> None:
    """With the line and the variable, while there is room left."""
    net = nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    kept: list[torch.Tensor] = []
    told_at: int | None = None
    with memguard.watch(net, optimizer, device="cuda:0", logdir=tmp_path, quiet=True) as guard:
        for number in guard.batches(range(BATCHES)):
            net(torch.ones(8, 64, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            kept.append(block(int(0.6 * room / BATCHES)))  # GROWS
            if told_at is None and (of(guard, "MG301") or of(guard, "MG501")):
                told_at = number
    assert told_at is not None and told_at < BATCHES - 10, guard.findings
    found = [*of(guard, "MG301"), *of(guard, "MG501")]
    assert any((each.file, each.line) == (__file__, line_of(__file__, "GROWS")) for each in found), found
    assert any("kept" in (each.holder or "") for each in found), found


def test_a_peak_at_the_edge_of_the_room_is_told(room: int, tmp_path: Path) -> None:
    """Though the card itself has plenty."""
    with memguard.watch(device="cuda:0", logdir=tmp_path, quiet=True) as guard:
        for _ in guard.batches(range(20)):
            block(int(0.985 * room))
    (found, *_) = of(guard, "MG504") or [None]
    assert found is not None, guard.findings
    assert found.bytes is not None and found.bytes <= 0.03 * room


def test_a_level_loop_in_a_small_room_is_told_nothing(room: int, tmp_path: Path) -> None:
    """Half of what it may take, again and again."""
    with memguard.watch(device="cuda:0", logdir=tmp_path, quiet=True) as guard:
        for _ in guard.batches(range(60)):
            block(room // 2)
    assert {finding.code for finding in guard.findings} <= {"MG601"}
