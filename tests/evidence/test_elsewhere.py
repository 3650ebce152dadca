"""Forwards of guarded models on other threads, counted there."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from memguard.evidence.graphs.hidden_evaluation import ThreadedEvaluationProbe
from memguard.evidence.other_threads import OtherThreads
from memguard.records.facts import UnusedGraphs
from tests.evidence.loop import Loop, sees_saved_tensors


def line_of(marker: str) -> int:
    with open(__file__) as file:
        return next(number for number, text in enumerate(file, 1) if text.rstrip().endswith(f"# {marker}"))


def hear(elsewhere: OtherThreads, model: nn.Module) -> None:
    """As a front door does."""
    model.register_forward_pre_hook(lambda module, args: elsewhere.start())
    model.register_forward_hook(elsewhere.end)


def forget(answer: torch.Tensor) -> None:
    """The graph dies unused."""


def differentiate(answer: torch.Tensor) -> None:
    answer.sum().backward()  # type: ignore[no-untyped-call]


def evaluate(model: nn.Module, act: Callable[[torch.Tensor], None], count: int = 4) -> None:
    for _ in range(count):
        act(model(torch.ones(2, 8)))  # asked in a thread


def on_thread(work: Callable[..., Any], *args: Any) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work, *args).result()


def test_graphs_that_die_on_another_thread_are_counted() -> None:
    """Those of the outermost model that is heard, for it is that one's call that matters."""
    elsewhere, part = OtherThreads(), nn.Linear(8, 8)
    model = nn.Sequential(part, nn.ReLU()).eval()
    hear(elsewhere, model)
    hear(elsewhere, part)
    on_thread(evaluate, model, forget)
    (found,) = elsewhere.unused(3)
    assert (found.ref(), found.unused, found.forwards, found.used) == (model, 4, 4, False)
    assert found.place.line == line_of("asked in a thread")
    assert elsewhere.unused(3) == []


@pytest.mark.parametrize("case", ["used", "without gradients", "training", "this thread", "fed", "few"])
def test_what_is_no_evaluation_elsewhere_is_not_counted(case: str) -> None:
    """A backward, no graph at all, training mode, the guarded thread, another model's graph, one or two."""
    elsewhere, model = OtherThreads(), nn.Linear(8, 8)
    model.train(case == "training")
    hear(elsewhere, model)
    if case == "without gradients":
        on_thread(torch.no_grad()(evaluate), model, forget)
    elif case == "this thread":
        evaluate(model, forget)
    elif case == "fed":
        first = nn.Linear(8, 8)
        on_thread(lambda: [model(first(torch.ones(2, 8))) for _ in range(4)] and None)
    else:
        on_thread(evaluate, model, differentiate if case == "used" else forget, 2 if case == "few" else 4)
    assert elsewhere.unused(3) == []


def test_a_backward_through_a_forward_on_another_thread_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """Of a model in training mode: nobody records that."""
    elsewhere, model = OtherThreads(), nn.Sequential(nn.Linear(8, 8))
    hear(elsewhere, model)
    on_thread(evaluate, model, differentiate)
    assert elsewhere.trained is not None and elsewhere.trained.startswith("Sequential was trained on another thread")
    assert [record.getMessage() for record in caplog.records] == [f"memguard: {elsewhere.trained}."]


@pytest.mark.parametrize(
    "case", ["unused", "evaluation", "without gradients", "this thread", "computed again", "replica"]
)
def test_what_is_no_training_elsewhere_is_not_told(case: str, caplog: pytest.LogCaptureFixture) -> None:
    """No backward, eval mode, no graph, the guarded thread, a checkpoint's second forward, DataParallel's copies."""
    elsewhere, model = OtherThreads(), nn.Linear(8, 8)
    model.train(case != "evaluation")
    hear(elsewhere, model)
    if case == "this thread":
        evaluate(model, differentiate)
    elif case == "without gradients":
        on_thread(torch.no_grad()(evaluate), model, forget)
    elif case == "computed again":
        loss = torch.ones(1, requires_grad=True).sum()
        loss.register_hook(lambda grad: torch.enable_grad()(evaluate)(model, differentiate))
        on_thread(differentiate, loss)
    else:
        if case == "replica":
            model._is_replica = True  # type: ignore[assignment]  # as torch.nn.parallel.replicate marks it
        on_thread(evaluate, model, forget if case == "unused" else differentiate)
    assert elsewhere.trained is None and not caplog.records


@sees_saved_tensors
def test_a_model_that_is_trained_is_told_a_frozen_one_is_not() -> None:
    """By the guarded thread, at the end of its batch, and once."""
    trained, frozen = nn.Linear(8, 8).eval(), nn.Linear(8, 8).eval()
    optimizer = torch.optim.SGD(trained.parameters(), 0.1)
    with Loop(trained, frozen, kinds=[ThreadedEvaluationProbe]) as loop:
        for model in (trained, frozen):
            hear(loop.watch.elsewhere, model)
        for _ in loop.batches(3):
            optimizer.step()
            for model in (trained, frozen):
                on_thread(evaluate, model, forget)
    (fact,) = loop.of(UnusedGraphs)
    assert (fact.module, fact.elsewhere, fact.count, fact.frozen) == ("Linear", True, 4, False)
    assert fact.place.line == line_of("asked in a thread") and fact.bytes
