"""Graphs of micro-batches between two optimizer steps, in loops of a few lines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import memguard
from memguard.records.findings import Finding, Severity

MICRO_BATCHES = 8


class Training:
    """A model whose activations are as large as its weights."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 1000))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def entropy(self) -> tuple[torch.Tensor, torch.Tensor]:
        log_probs = self.model(torch.randn(128, 64)).log_softmax(-1)
        return -log_probs[:, 0].mean(), -(log_probs.exp() * log_probs).sum(-1)

    def step(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


class Tasks(Training):
    """Whose model has a head for each task, and is called by its parts alone."""

    def __init__(self) -> None:
        super().__init__()
        heads = [nn.Linear(256, 1000) for _ in range(MICRO_BATCHES)]
        self.model = nn.Sequential(nn.Linear(64, 256), *heads)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)


Update = Callable[[Training], None]


def keeps(what: Callable[[torch.Tensor, torch.Tensor], object], *, retain_graph: bool = False) -> Update:
    """Of each micro-batch something of its loss and its entropy is kept until the step."""

    def update(training: Training) -> None:
        kept = []
        for _ in range(MICRO_BATCHES):
            loss, entropy = training.entropy()
            loss.backward(retain_graph=retain_graph)
            kept.append(what(loss, entropy))
        training.step()

    return update


keeps_outputs = keeps(lambda loss, entropy: entropy)
keeps_losses_with_retained_graphs = keeps(lambda loss, entropy: loss, retain_graph=True)


def sends_detached_outputs_on(training: Training) -> None:
    sent, received = [], []
    for _ in range(MICRO_BATCHES):
        sent.append(training.model(torch.randn(128, 64)))
        received.append(sent[-1].detach().requires_grad_())
    for output, boundary in zip(sent, received, strict=True):
        boundary.square().mean().backward()
        output.backward(boundary.grad)
    training.step()


def one_backward_for_all(training: Training) -> None:
    losses = []
    for _ in range(MICRO_BATCHES):
        loss, entropy = training.entropy()
        losses.append(loss + entropy.mean())
    torch.stack(losses).mean().backward()
    training.step()


def adds_up_losses(training: Training) -> None:
    total: torch.Tensor | int = 0
    for _ in range(MICRO_BATCHES):
        total = total + training.entropy()[0] / MICRO_BATCHES
    assert isinstance(total, torch.Tensor)
    total.backward()
    training.step()


def adds_them_up_elsewhere(training: Training) -> None:
    def mean_loss() -> torch.Tensor:
        losses: list[torch.Tensor] = []
        while len(losses) < MICRO_BATCHES:
            losses.append(training.entropy()[0])
        return torch.stack(losses).mean()

    mean_loss().backward()
    training.step()


def adds_them_up_in_place(training: Training) -> None:
    total = torch.zeros(())
    for _ in range(MICRO_BATCHES):
        total += training.entropy()[0]
    total.backward()
    training.step()


def adds_them_up_under_autocast(training: Training) -> None:
    with torch.autocast("cpu", torch.bfloat16):  # casts each weight once for all forwards
        adds_up_losses(training)


def terms_of_one_forward(training: Training) -> None:
    log_probs = training.model(torch.randn(8 * 128, 64)).log_softmax(-1)
    total = sum(-(log_probs[:, number].exp() * log_probs[:, number]).mean() for number in range(MICRO_BATCHES))
    assert isinstance(total, torch.Tensor)
    total.backward()
    training.step()


def one_trunk_for_all_tasks(training: Training) -> None:
    trunk = training.model(torch.randn(128, 64))
    losses = [training.entropy()[0] + trunk.square().mean() for _ in range(MICRO_BATCHES)]
    torch.stack(losses).sum().backward()
    training.step()


def an_ensemble(training: Training) -> None:
    members = [nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 1000)) for _ in range(MICRO_BATCHES)]
    losses = [-member(torch.randn(128, 64)).log_softmax(-1)[:, 0].mean() for member in members]
    torch.stack(losses).mean().backward()
    training.entropy()[0].backward()
    training.step()


def a_policy_gradient_of_stacked_terms(training: Training) -> None:
    log_probs, rewards = [], []
    for _ in range(MICRO_BATCHES):
        log_probs.append(training.entropy()[0])
        rewards.append(torch.rand(()))
    (torch.stack(log_probs) * torch.stack(rewards)).mean().backward()
    training.step()


def a_second_backward_for_each(training: Training) -> None:
    entropies = []
    for _ in range(MICRO_BATCHES):
        loss, entropy = training.entropy()
        loss.backward(retain_graph=True)
        entropies.append(entropy)
    torch.stack(entropies).mean().backward()
    training.step()


def a_second_forward_for_a_metric(training: Training) -> None:
    kept = []
    for _ in range(MICRO_BATCHES):
        loss, _ = training.entropy()
        _, entropy = training.entropy()
        loss.backward()
        kept.append(entropy)
    training.step()


def a_roll_out_that_several_steps_learn_from(training: Training) -> None:
    kept = []
    for _ in range(MICRO_BATCHES):
        kept.append(training.entropy()[1])  # noqa: PERF401
    for old in kept[:3]:
        loss, entropy = training.entropy()
        (loss + (entropy - old.detach()).exp().mean()).backward()
        training.step()


def a_second_forward_that_another_optimizer_needs(training: Training) -> None:
    waiting = []
    for _ in range(MICRO_BATCHES):
        loss, _ = training.entropy()
        _, entropy = training.entropy()
        loss.backward()
        waiting.append(entropy)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).step()
    torch.stack(waiting).mean().backward()
    training.step()


def keeps_losses_of_the_parts_of_a_model(training: Training) -> None:
    kept = {}
    trunk, *heads = training.model.children()
    features = trunk(torch.randn(128, 64))
    for number, head in enumerate(heads):
        kept[number] = -head(features).log_softmax(-1)[:, 0].mean()
        kept[number].backward(retain_graph=True)
    training.step()


def retained_graphs_that_another_optimizer_needs(training: Training) -> None:
    waiting = []
    for _ in range(MICRO_BATCHES):
        loss, entropy = training.entropy()
        loss.backward(retain_graph=True)
        waiting.append(entropy)
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).step()
    torch.stack(waiting).mean().backward()
    training.step()


@pytest.fixture
def findings(tmp_path: Path) -> Iterator[Callable[..., list[Finding]]]:
    """What is found in two updates on a virtual GPU."""

    def run(update: Update, *, steps: int = 2, device: str = "virtual:1GiB", code: str = "MG106") -> list[Finding]:
        training = Tasks() if update is keeps_losses_of_the_parts_of_a_model else Training()
        models = [*training.model.children()] if type(training) is Tasks else [training.model]
        watched = memguard.watch(models, training.optimizer, device=device, logdir=tmp_path, quiet=True)
        with watched as guard, contextlib.suppress(torch.OutOfMemoryError):
            for _ in range(steps):
                update(training)
        return [each for each in guard.findings if each.code == code]

    yield run


def test_kept_graphs_are_reported_in_the_first_step(findings: Callable[..., list[Finding]]) -> None:
    """One step is enough, with the holder and the number of micro-batches."""
    (found,) = findings(keeps_outputs, steps=1)
    assert found.holder == "kept"
    assert f"the graphs of {MICRO_BATCHES - 1} earlier micro-batches" in found.message
    assert found.bytes is not None
    assert 2 * 128 * 1000 * 4 * (MICRO_BATCHES - 1) <= found.bytes <= 3 * 128 * 1000 * 4 * MICRO_BATCHES


@pytest.mark.parametrize(
    "update",
    [
        *(a_second_backward_for_each, terms_of_one_forward, one_trunk_for_all_tasks, an_ensemble),
        *(a_policy_gradient_of_stacked_terms, sends_detached_outputs_on),
        *(a_second_forward_that_another_optimizer_needs, retained_graphs_that_another_optimizer_needs),
    ],
)
def test_what_is_needed_or_small_is_not_reported(findings: Callable[..., list[Finding]], update: Update) -> None:
    """Graphs that a later backward runs through; more of that kind is among the healthy programs of the corpus."""
    assert findings(update) == []


@pytest.mark.parametrize(
    ("update", "holder"),
    [
        *((adds_up_losses, "total"), (one_backward_for_all, "losses"), (adds_them_up_elsewhere, "losses")),
        *((adds_them_up_under_autocast, "total"), (adds_them_up_in_place, "total")),
    ],
)
def test_losses_added_up_for_one_backward_are_reported(
    findings: Callable[..., list[Finding]], update: Update, holder: str
) -> None:
    """What a backward for each would leave of the peak is a bound; it is a remark unless that saves half of it."""
    (found,) = findings(update)
    half = "autocast" not in update.__name__
    expected = Severity.WARNING if half else Severity.INFO
    assert (found.severity, found.holder, found.count) == (expected, holder, MICRO_BATCHES)
    assert f"the losses of {MICRO_BATCHES} micro-batches for one backward" in found.message
    assert "at the least" in found.message


def test_losses_added_up_on_a_device_that_reports_no_peak_are_a_remark(findings: Callable[..., list[Finding]]) -> None:
    """Their graphs are compared with the weights there."""
    (found,) = findings(adds_up_losses, device="cpu")
    assert "peak" not in found.message


def test_graphs_that_no_backward_ever_reaches_are_reported_in_the_second_step(
    findings: Callable[..., list[Finding]],
) -> None:
    """Whether a backward comes for them is known when they are gone."""
    (found,) = findings(a_second_forward_for_a_metric)
    assert found.holder == "kept"
    assert "no backward ever runs through them" in found.message
    assert "torch.no_grad()" in (found.advice or "")


def test_graphs_that_a_step_made_stale_are_reported_at_the_next_forward(
    findings: Callable[..., list[Finding]],
) -> None:
    """The weights that they need have changed: no backward can run through them, however long they are kept."""
    (found,) = findings(a_roll_out_that_several_steps_learn_from, steps=1)
    assert (found.holder, found.count) == ("kept", MICRO_BATCHES)
    assert f"the graphs of {MICRO_BATCHES} earlier forwards" in found.message
    assert "torch.no_grad()" in (found.advice or "")


def test_retained_graphs_that_no_further_backward_reaches_are_reported_in_the_second_step(
    findings: Callable[..., list[Finding]],
) -> None:
    """With all that they hold, as one finding: the remark on the one graph beside the next is a part of it."""
    (found,) = findings(keeps_losses_with_retained_graphs)
    assert found.holder == "kept" and found.bytes is not None
    assert found.bytes >= 128 * 1000 * 4 * (MICRO_BATCHES - 1)
    assert "their backward has run" in found.message
    assert findings(keeps_losses_with_retained_graphs, code="MG103") == []


def test_retained_graphs_of_parts_count_as_those_of_a_model(findings: Callable[..., list[Finding]]) -> None:
    """A head for each task, of a model that is not called itself."""
    (found,) = findings(keeps_losses_of_the_parts_of_a_model, steps=3)
    assert found.holder == "kept" and (found.bytes or 0) >= 128 * 1000 * 4 * (MICRO_BATCHES - 1)
    assert f"the graphs of {MICRO_BATCHES - 1} earlier forwards" in found.message


def test_kept_graphs_are_reported_before_a_step_that_never_comes(findings: Callable[..., list[Finding]]) -> None:
    """Where the device fills with them, the warning comes first, and is what the out-of-memory report rests on."""
    (found,) = findings(keeps_outputs, device="virtual:8MiB")
    assert found.holder == "kept"
    assert "the optimizer has yet to step" in found.message


def test_memory_that_falls_at_every_step_is_no_growth(findings: Callable[..., list[Finding]]) -> None:
    """However small the device: MG501 counts what is left after a step."""
    assert findings(keeps_outputs, steps=40, device="virtual:12MiB", code="MG501") == []
