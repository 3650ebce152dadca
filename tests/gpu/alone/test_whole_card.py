"""Out of memory for real: nothing limits the process but the card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import memguard
from memguard.integrations.guard import Guard
from memguard.text.units import GIB
from tests.gpu.card import block, total_bytes
from tests.gpu.models import images, small_net

NEAR = 0.02
"""Share of the card by which two readings of the driver's numbers may differ: other contexts come and go."""


def used_bytes() -> int:
    free, total = torch.cuda.mem_get_info()
    return int(total - free)


def watch(logdir: Path, *parts: Any, **options: Any) -> Guard:
    return memguard.watch(*parts, device="cuda:0", logdir=logdir, quiet=True, **options)


def check(told: dict[str, Any], used: int, logdir: Path) -> None:
    """What every report of a real error must hold."""
    request, total = told["request"], total_bytes()
    assert sum(told["owners"].values()) == pytest.approx(request["allocated_bytes"], rel=0.01)
    assert request["limit_bytes"] == total
    assert request["free_bytes"] == pytest.approx(total - used, abs=NEAR * total)
    assert told["seconds"] < 3
    (folder,) = [path.parent for path in logdir.rglob("report.json")]
    assert json.loads((folder / "report.json").read_text())["cause_kind"] == told["cause_kind"]
    assert {"report.md", "report.html", "snapshot.pickle"} <= {path.name for path in folder.iterdir()}


def test_a_batch_that_no_card_holds(tmp_path: Path) -> None:
    """The error is torch's own, with its own text; the report says what was asked for and what held the memory."""
    net = small_net().cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    asked = 200 * GIB if total_bytes() < 200 * GIB else 2 * total_bytes()

    def fails() -> torch.OutOfMemoryError:
        with pytest.raises(torch.OutOfMemoryError) as caught:
            block(asked)
        return caught.value

    def train() -> None:
        x, y = images(16)
        functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    for _ in range(2):
        train()
    torch.cuda.empty_cache()
    plain = fails()
    with pytest.raises(torch.OutOfMemoryError) as caught, watch(tmp_path, net, optimizer) as guard:
        for _ in range(3):
            train()
        torch.cuda.empty_cache()
        block(asked)
    told, used = guard.result().oom, used_bytes()
    assert type(caught.value) is type(plain) and len(caught.value.args) == len(plain.args) == 1
    assert str(caught.value).partition(" GPU 0 has")[0] == str(plain).partition(" GPU 0 has")[0]
    assert caught.value.__cause__ is None and caught.value.__context__ is None
    assert any("out of memory on cuda:0" in note for note in caught.value.__notes__)
    assert told is not None and told["request"]["requested_bytes"] == asked
    weights = sum(value.nbytes for value in net.parameters())
    assert told["owners"]["parameters"] >= weights
    check(told, used, tmp_path)


def test_a_card_that_is_filled_to_its_end(tmp_path: Path) -> None:
    """In a few large steps: the list that holds them is the cause, and nearly all bytes are its own."""
    kept: list[torch.Tensor] = []
    size = total_bytes() // 10
    net = nn.Linear(64, 64).cuda()
    with pytest.raises(torch.OutOfMemoryError) as caught, watch(tmp_path, net) as guard:
        for _ in guard.batches(range(16)):
            net(torch.ones(8, 64, device="cuda")).sum().backward()
            kept.append(block(size))  # FILLS
    told, used = guard.result().oom, used_bytes()
    assert type(caught.value) is torch.OutOfMemoryError
    assert 8 <= len(kept) <= 10
    assert told is not None and told["cause_kind"] == "leak", told and told["cause"]
    assert "kept" in told["cause"] + told["advice"][0]["text"]
    assert told["owners"]["outputs"] + told["owners"]["temporaries"] >= 0.98 * told["request"]["allocated_bytes"]
    check(told, used, tmp_path)
    number = guard.records[-1].num_ooms
    kept.clear()
    del caught
    torch.cuda.empty_cache()
    assert number == 1 and used_bytes() < 0.2 * total_bytes()


def test_free_memory_in_pieces(tmp_path: Path) -> None:
    """More than a quarter of the card is free, and nowhere in one place: told batch by batch, and when it fails."""
    unit = total_bytes() // 80
    with pytest.raises(torch.OutOfMemoryError), watch(tmp_path, history="always") as guard:
        blocks = [block(unit) for _ in range(74)]
        count = len(blocks)
        blocks.clear()  # back to the cache, each a segment of its own
        kept = [block(int(0.7 * unit)) for _ in range(count)]
        for _ in guard.batches(range(60)):
            block(1024)
        assert torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > 0.2 * total_bytes()
        block(8 * unit)
    assert len(kept) == count
    (found, *_) = [finding for finding in guard.findings if finding.code == "MG401"] or [None]
    assert found is not None, guard.findings
    assert found.bytes == pytest.approx(0.3 * count * unit, rel=0.1)
    told = guard.result().oom
    assert told is not None and told["cause_kind"] == "fragmentation", told and told["cause"]
    assert [each["fits"] for each in told["replay"]] == [True]
    check(told, used_bytes(), tmp_path)


def test_a_peak_at_the_edge(tmp_path: Path) -> None:
    """Less than three hundredths of the card are left, what context and libraries hold included."""
    free, total = torch.cuda.mem_get_info()
    size = free - total // 100
    with watch(tmp_path) as guard:
        for _ in guard.batches(range(60)):
            block(size)
    (found, *_) = [finding for finding in guard.findings if finding.code == "MG504"] or [None]
    assert found is not None, guard.findings
    assert found.bytes is not None and found.bytes <= 0.03 * total


def test_half_a_card_is_room_enough(tmp_path: Path) -> None:
    """Neither at the edge nor in pieces."""
    size = total_bytes() // 2
    with watch(tmp_path) as guard:
        for _ in guard.batches(range(60)):
            block(size)
    assert {finding.code for finding in guard.findings} & {"MG401", "MG402", "MG504"} == set()
