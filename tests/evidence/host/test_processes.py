"""Memory on other devices and private pools, with a CUDA made of functions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from memguard.evidence.host.processes import CompilationsProbe, OtherDevicesProbe
from memguard.records.facts import CompiledGraphs, OtherDevice
from memguard.text.units import MIB
from tests.evidence.loop import Loop


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process works on the second of two devices, and something of it lies on the first."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: 20 * MIB)


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize(
    ("variables", "device", "told"),
    [({"LOCAL_RANK": "1"}, "cuda:1", ["cuda:0"]), ({}, "cuda:1", []), ({"LOCAL_RANK": "1"}, "cpu", [])],
)
def test_memory_on_another_ranks_device_is_told(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], device: str, told: list[str]
) -> None:
    """Of a rank on a GPU; a process without a rank means it so."""
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with Loop(nn.Linear(2, 2), kinds=[OtherDevicesProbe], device=device) as loop:
        for _ in loop.batches(12):
            pass
    assert [fact.device for fact in loop.of(OtherDevice)] == told


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize(("ranks", "current", "told"), [("2", 0, True), ("4", 0, False), ("2", 1, False)])
def test_a_rank_that_was_given_no_device_is_told(
    monkeypatch: pytest.MonkeyPatch, ranks: str, current: int, told: bool
) -> None:
    """Not where more ranks than devices share them, nor where it works on its own."""
    for name, value in {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": ranks}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: 20 * MIB * (index == current))
    with Loop(nn.Linear(2, 2), kinds=[OtherDevicesProbe], device=f"cuda:{current}") as loop:
        for _ in loop.batches(12):
            pass
    assert [(fact.device, fact.own_device, fact.model) for fact in loop.of(OtherDevice)] == [
        ("cuda:0", "cuda:1", True)
    ] * told


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize(("ranks", "told"), [("2", ["cuda:0"]), ("1", [])])
def test_a_model_on_the_device_of_another_rank_is_told(
    monkeypatch: pytest.MonkeyPatch, ranks: str, told: list[str]
) -> None:
    """A second model there is no model in parts where every device has a rank of its own."""
    for name, value in {"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": ranks}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("memguard.evidence.host.processes._homes", lambda models: {0, 1})
    with Loop(nn.Linear(2, 2), kinds=[OtherDevicesProbe], device="cuda:1") as loop:
        for _ in loop.batches(12):
            pass
    assert [fact.device for fact in loop.of(OtherDevice)] == told


@pytest.mark.usefixtures("two_devices")
def test_a_device_that_is_not_known_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With device "auto" the look is not spent before a device was found."""
    monkeypatch.setenv("LOCAL_RANK", "1")
    with Loop(nn.Linear(2, 2), kinds=[OtherDevicesProbe], device="auto") as loop:
        for index in loop.batches(24):
            loop.watch.device = "cuda:1" if index > 15 else "auto"
    assert [fact.bytes for fact in loop.of(OtherDevice)] == [20 * MIB]


def test_private_pools_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each captured graph has one; one that holds nothing any more is not counted."""

    def stats() -> dict[str, Any]:
        sizes = {(number, 0): {"all": {"current": 3 * MIB * (number > 1)}} for number in range(loop.watch.batches)}
        return {"reserved_bytes_by_private_pools": sizes}

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", stats)
    with Loop(nn.Linear(2, 2), kinds=[CompilationsProbe], device="cuda:0") as loop:
        for _ in loop.batches(30):
            pass
    first, *_, last = loop.of(CompiledGraphs)
    assert (last.pools - first.pools, last.pool_bytes - first.pool_bytes) == (16, 48 * MIB)


def test_private_pools_are_counted_where_the_statistics_do_not_tell_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on torch 2.11: from the snapshot's segments, which is read only where the driver gave new ones."""
    read: list[int] = []

    def snapshot(**options: bool) -> list[dict[str, Any]]:
        read.append(loop.watch.batches)
        count = min(loop.watch.batches, 20)
        pools = [(0, 0), *((0, number) for number in range(1, count))]
        return [{"device": device, "segment_pool_id": pool, "total_size": MIB} for device in (0, 1) for pool in pools]

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda.memory, "memory_snapshot", snapshot)
    segments = {"all": {"allocated": 0}}
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda: {"segment": segments})
    with Loop(nn.Linear(2, 2), kinds=[CompilationsProbe], device="cuda:0") as loop:
        for batch in loop.batches(60):
            segments["all"]["allocated"] = min(batch, 20)
    assert [(fact.pools, fact.pool_bytes) for fact in loop.of(CompiledGraphs)] == [
        (7, 7 * MIB),
        (15, 15 * MIB),
        (19, 19 * MIB),
    ]
    assert len(read) == 3, "not again once nothing grows"
