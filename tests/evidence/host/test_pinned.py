"""The cache of pinned memory, and tensors sent to other processes through CUDA IPC, with numbers made up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from memguard.evidence.host import processes
from memguard.evidence.host.processes import PinnedProbe, SentProbe
from memguard.records.facts import PinnedCacheGrows, PinnedRounded, SentToProcesses
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


@pytest.mark.parametrize(("elements", "told"), [(9 * MIB, True), (16 * MIB, False), (2 * MIB, False)])
def test_rounding_that_takes_much_is_told_of_who_keeps_it(
    monkeypatch: pytest.MonkeyPatch, elements: int, told: bool
) -> None:
    """Two tensors of 36 MiB take 64 MiB each; of a power of two, or of a few MiB, it is nothing."""
    stage = {name: torch.empty(elements) for name in ("weight", "state")}
    block = 2 * (1 << (4 * elements - 1).bit_length())
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: tensor.numel() == elements)
    stats = {"allocated_bytes.current": max(block, 200 * MIB), "active_bytes.current": max(block, 128 * MIB)}
    monkeypatch.setattr(torch.cuda, "host_memory_stats", lambda: stats, raising=False)
    with Loop(nn.Linear(2, 2), kinds=[PinnedProbe], device="cuda:0") as loop:
        for _ in loop.batches(40):
            pass
    facts = [(fact.place.holder, fact.tensors, fact.bytes, fact.block_bytes) for fact in loop.of(PinnedRounded)]
    assert facts == ([("stage", 2, 8 * elements, block)] if told else [])
    assert len(stage) == 2


class Ref:
    def __init__(self, gone: bool) -> None:
        self._gone = gone

    def expired(self) -> bool:
        return self._gone


def test_those_that_are_gone_here_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those that are still there, nor what is in host memory: files by name or by number."""
    cache: dict[object, Ref] = {b"/torch_1_2_3": Ref(True), (1, 2): Ref(True)}
    monkeypatch.setattr(processes, "shared_cache", cache)
    with Loop(nn.Linear(2, 2), kinds=[SentProbe], device="cuda:0") as loop:
        for index in loop.batches(40):
            cache[bytes([128, index])] = Ref(index % 2 == 0)
        loop.probes.run_end()
        loop.facts += loop.probes.take()
    assert [fact.tensors for fact in loop.of(SentToProcesses)] == [8, 16, 20]


def test_on_another_device_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host memory goes to other processes by files."""
    monkeypatch.setattr(processes, "shared_cache", {b"\x80": Ref(True)})
    with Loop(nn.Linear(2, 2), kinds=[SentProbe], device="cpu") as loop:
        for _ in loop.batches(40):
            pass
    assert loop.of(SentToProcesses) == []
