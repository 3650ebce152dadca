"""Tensors that were sent to other processes through CUDA IPC, with handles made up."""

from __future__ import annotations

import pytest
from torch import nn

from memguard.evidence.host import processes
from memguard.evidence.host.processes import SentProbe
from memguard.records.facts import SentToProcesses
from tests.evidence.loop import Loop


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
