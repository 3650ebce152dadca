"""Gradients in loops that change their weights by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from memguard.evidence.graphs.manual_steps import ManualStepsProbe
from memguard.evidence.peaks.gradients import ByHandProbe
from memguard.records.facts import StaleGradients
from tests.evidence.loop import Loop
from tests.evidence.scripts import user_module

NBYTES = (256 * 256 + 256) * 4


def told(path: Path, update: str, *, late: str = "pass", every: int = 1, micro: str = "pass") -> list[tuple[str, bool]]:
    """The lines and kinds that are told of a loop that takes a step by hand, after each batch or after some."""
    text = f"""
import torch

def update(net):
    with torch.no_grad():
        for p in net.parameters():
            {update}

def train(loop, net, x):
    for step in loop.batches(12):
        loss = net(x).square().mean()
        {late}
        loss.backward()
        {micro}
        if step % {every} == {every - 1}:
            update(net)
"""
    model = nn.Linear(256, 256)
    with user_module(text, path / "by_hand_script.py", "by_hand_script") as module:
        exec(compile(text, str(module.__file__), "exec"), module.__dict__)
        with Loop(model, kinds=[ManualStepsProbe, ByHandProbe]) as loop:
            module.train(loop, model, torch.randn(4, 256))
    facts = loop.of(StaleGradients)
    assert all(fact.by_hand and fact.bytes == NBYTES for fact in facts)
    return [(text.splitlines()[fact.place.line - 1].strip(), fact.zeroed) for fact in facts]


@pytest.mark.parametrize(
    ("update", "zeroing"),
    [
        ("p.sub_(p.grad, alpha=0.1); p.grad.zero_()", "p.sub_(p.grad, alpha=0.1); p.grad.zero_()"),
        ("p -= 0.1 * p.grad; p.grad.data.fill_(0)", "p -= 0.1 * p.grad; p.grad.data.fill_(0)"),
        ("p -= 0.1 * p.grad; p.grad *= 0.0", "p -= 0.1 * p.grad; p.grad *= 0.0"),
    ],
)
def test_gradients_zeroed_by_hand_are_told_where_they_are(tmp_path: Path, update: str, zeroing: str) -> None:
    """They lie there as zeros through the next forward, as with set_to_none=False."""
    assert told(tmp_path, update) == [(zeroing, True)]


def test_gradients_let_go_after_the_forward_are_told(tmp_path: Path) -> None:
    """The order of calls that many first loops have."""
    late = "net.zero_grad()"
    assert told(tmp_path, "p.sub_(p.grad, alpha=0.1)", late=late) == [(late, False)]


@pytest.mark.parametrize(
    ("update", "every", "micro"),
    [
        ("p.sub_(p.grad, alpha=0.1); p.grad = None", 1, "pass"),
        ("p.sub_(p.grad, alpha=0.1); p.grad.zero_()", 4, "pass"),
        ("p.sub_(p.grad, alpha=0.1); p.grad.zero_()", 4, "torch.nn.utils.clip_grad_norm_(net.parameters(), 1e-3)"),
        ("p.sub_(p.grad, alpha=0.1); p.grad.mul_(0.9)", 1, "pass"),
        ("p.sub_(p.grad, alpha=0.1); p.grad.mul_(0.9); p.grad[0].zero_()", 1, "pass"),
    ],
)
def test_gradients_that_are_wanted_or_gone_are_silent(tmp_path: Path, update: str, every: int, micro: str) -> None:
    """Let go in time, accumulated over batches, clipped meanwhile, or kept as a momentum of which one row is zeroed."""
    assert told(tmp_path, update, every=every, micro=micro) == []


def test_gradients_of_an_optimizer_are_another_matter() -> None:
    """The first optimizer's step ends it."""
    model = nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Loop(model, kinds=[ManualStepsProbe, ByHandProbe]) as loop:
        for _ in loop.batches(8):
            optimizer.zero_grad(set_to_none=False)
            model(torch.randn(4, 256)).sum().backward()
            optimizer.step()
    assert loop.of(StaleGradients) == []
