"""Training on another thread than the guarded one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn

from memguard.evidence.other_threads import OtherThreads


def hear(elsewhere: OtherThreads, model: nn.Module) -> None:
    """As a front door does."""
    model.register_forward_pre_hook(lambda module, args: elsewhere.start())
    model.register_forward_hook(lambda module, args, output: elsewhere.end(module, output))


def forget(answer: torch.Tensor) -> None:
    """The graph dies unused."""


def differentiate(answer: torch.Tensor) -> None:
    answer.sum().backward()  # type: ignore[no-untyped-call]


def evaluate(model: nn.Module, act: Callable[[torch.Tensor], None], count: int = 4) -> None:
    for _ in range(count):
        act(model(torch.ones(2, 8)))


def on_thread(work: Callable[..., Any], *args: Any) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work, *args).result()


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
