"""Three faults in a real network of convolutions under autocast: named with line and holder, and weighed rightly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

import memguard
from memguard.integrations.guard import Guard
from memguard.records.findings import Finding
from tests.gpu.card import line_of
from tests.gpu.models import images, resnet

BATCHES, SIZE = 24, 32
Loop = Callable[[nn.Module, torch.optim.Optimizer], list[int]]


def train(net: nn.Module, optimizer: torch.optim.Optimizer) -> torch.Tensor:
    """One batch; its loss."""
    x, y = images(SIZE)
    with torch.autocast("cuda", torch.bfloat16):
        loss = functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def keeps_graphs(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[int]:
    """A consistency term that is logged, and kept with all activations of its forward."""
    history, allocated = [], []
    for _ in range(BATCHES):
        train(net, optimizer)
        x, _ = images(SIZE)
        with torch.autocast("cuda", torch.bfloat16):
            drift = net(x).square().mean()
        history.append(drift)  # GRAPHS
        del x, drift
        allocated.append(torch.cuda.memory_allocated())
    return allocated


def keeps_outputs(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[int]:
    """Feature maps of each batch, without their graphs."""
    maps, allocated = [], []
    stem = nn.Conv2d(3, 64, 7, padding=3).cuda()
    for _ in range(BATCHES):
        train(net, optimizer)
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            maps.append(stem(images(SIZE)[0]))  # OUTPUTS
        allocated.append(torch.cuda.memory_allocated())
    return allocated


def forgets_no_grad(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[int]:
    """An evaluation of six batches after the training ones, with the memory that its graphs take."""
    for _ in range(4):
        train(net, optimizer)
    net.eval()
    held, found = [], 0.0
    for _ in range(6):
        x, y = images(SIZE)
        before = torch.cuda.memory_allocated()
        with torch.autocast("cuda", torch.bfloat16):
            scores = net(x)  # EVAL
        held.append(torch.cuda.memory_allocated() - before)
        found += (scores.argmax(1) == y).sum().item()
        del scores
    return held


def guarded(loop: Loop, logdir: Path) -> tuple[Guard, list[int]]:
    torch.manual_seed(0)
    net = resnet().cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    options = {"device": "cuda:0", "quiet": True, "validation": "warn"}
    with memguard.watch(net, optimizer, logdir=logdir, **options) as guard:
        numbers = loop(net, optimizer)
    return guard, numbers


def found(guard: Guard, code: str) -> Finding:
    (finding, *_) = [finding for finding in guard.findings if finding.code == code] or [None]
    assert finding is not None, guard.findings
    return finding


@pytest.mark.parametrize(
    ("loop", "code", "mark", "holder"),
    [(keeps_graphs, "MG101", "GRAPHS", "history"), (keeps_outputs, "MG301", "OUTPUTS", "maps")],
    ids=["graphs", "outputs"],
)
def test_what_grows_is_named_and_weighed(loop: Loop, code: str, mark: str, holder: str, tmp_path: Path) -> None:
    """At its line, by its variable, with the bytes by which a batch really grows."""
    guard, allocated = guarded(loop, tmp_path)
    finding = found(guard, code)
    assert (finding.file, finding.line) == (__file__, line_of(__file__, mark))
    assert holder in (finding.holder or "")
    grown = (allocated[-1] - allocated[4]) / (len(allocated) - 5)
    assert finding.bytes_per_batch == pytest.approx(grown, rel=0.2)


def test_an_evaluation_with_graphs_is_named_and_weighed(tmp_path: Path) -> None:
    """With the bytes that the graph of one of its forwards holds."""
    guard, held = guarded(forgets_no_grad, tmp_path)
    finding = found(guard, "MG201")
    assert (finding.file, finding.line) == (__file__, line_of(__file__, "EVAL"))
    assert finding.bytes == pytest.approx(max(held), rel=0.2)


def test_a_training_without_faults_is_told_nothing(tmp_path: Path) -> None:
    """Of warning or worse, but for what other processes on the card are told of."""

    def healthy(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[int]:
        total = 0.0
        for _ in range(BATCHES):
            total += train(net, optimizer).item()
        net.eval()
        with torch.no_grad():
            for _ in range(4):
                total += net(images(SIZE)[0]).sum().item()
        return []

    guard, _ = guarded(healthy, tmp_path)
    worse = [finding for finding in guard.findings if finding.severity.value != "info"]
    assert {finding.code for finding in worse} <= {"MG601"}, worse
