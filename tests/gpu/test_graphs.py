"""MG405 with CUDA graphs that are really captured, and with torch.compile through inductor."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

import memguard
from memguard.integrations.guard import Guard
from tests.gpu.card import IS_REAL, line_of

STEPS, WIDTH = 40, 64


def captures(logdir: Path, *, lengths: int) -> tuple[Guard, int]:
    """Trains beside an inference that replays one graph for each length; the guard, and how many graphs there were."""
    net = nn.Sequential(nn.Linear(WIDTH, 256), nn.ReLU(), nn.Linear(256, WIDTH)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(32, WIDTH, device="cuda")
    net(x).sum().backward()  # cuBLAS has its workspace before the first capture
    graphs: dict[int, tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor]] = {}
    with memguard.watch(net, optimizer, device="cuda:0", logdir=logdir, quiet=True) as guard:
        for step in range(STEPS):
            length = 500 + 37 * (step % lengths)
            if length not in graphs:
                still = torch.zeros(length, WIDTH, device="cuda")
                graph = torch.cuda.CUDAGraph()
                with torch.no_grad(), torch.cuda.graph(graph):  # CAPTURE
                    out = net(still)
                graphs[length] = (graph, still, out)
            graph, still, out = graphs[length]
            still.fill_(step)
            graph.replay()
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
        if IS_REAL:
            with torch.no_grad():
                assert torch.isfinite(out).all() and out.abs().sum() > 0
    return guard, len(graphs)


def test_a_graph_for_each_length_is_told_with_its_line(tmp_path: Path) -> None:
    """Each capture has a pool of its own, which is never given back."""
    guard, graphs = captures(tmp_path, lengths=STEPS)
    assert graphs == STEPS
    (found, *_) = [finding for finding in guard.findings if finding.code == "MG405"] or [None]
    assert found is not None, guard.findings
    assert (found.file, found.line) == (__file__, line_of(__file__, "CAPTURE"))


def test_one_graph_that_is_replayed_is_not(tmp_path: Path) -> None:
    """However often."""
    guard, graphs = captures(tmp_path, lengths=1)
    assert graphs == 1
    assert [finding for finding in guard.findings if finding.code == "MG405"] == []


def compiles(logdir: Path, monkeypatch: pytest.MonkeyPatch, *, lengths: int, steps: int) -> Guard:
    """Trains a compiled model on lengths for each of which it is compiled anew."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 64)
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 8)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    fast = torch.compile(net, mode="reduce-overhead", dynamic=False)  # COMPILE
    with memguard.watch(net, optimizer, device="cuda:0", logdir=logdir, quiet=True) as guard:
        for step in range(steps):
            x = torch.randn(16 + 8 * (max(step - 8, 0) % lengths), WIDTH, device="cuda")
            fast(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return guard


@pytest.mark.skipif(not IS_REAL or not shutil.which("gcc"), reason="inductor needs a GPU and a compiler")
def test_a_compilation_for_each_length_is_told_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inductor's own graphs, made again for ten lengths."""
    guard = compiles(tmp_path, monkeypatch, lengths=10, steps=26)
    found = [finding for finding in guard.findings if finding.code == "MG405"]
    assert found, (guard.findings, dict(torch._dynamo.utils.counters["stats"]))
    assert (found[0].file, found[0].line) == (__file__, line_of(__file__, "COMPILE"))


@pytest.mark.skipif(not IS_REAL or not shutil.which("gcc"), reason="inductor needs a GPU and a compiler")
def test_one_compilation_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replayed in each batch from private pools of its own."""
    guard = compiles(tmp_path, monkeypatch, lengths=1, steps=26)
    assert [finding for finding in guard.findings if finding.code == "MG405"] == []
