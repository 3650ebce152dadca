"""Backwards heard without a module."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import memguard
from memguard.integrations.loop.backward_calls import BackwardCalls


class Told:
    """Writes down what it hears; may fail."""

    def __init__(self, error: Exception | None = None) -> None:
        self.losses = 0
        self.errors: list[str] = []
        self.error = error

    def __call__(self, losses: Sequence[torch.Tensor]) -> None:
        self.losses += len(losses)
        if self.error is not None:
            raise self.error

    def failed(self, error: Exception) -> None:
        self.errors.append(str(error))


@pytest.fixture
def original() -> Iterator[object]:
    """The original function, in place again afterwards; a test that replaces it puts it back."""
    before, grad = torch.autograd.backward, torch.autograd.grad
    yield before
    assert torch.autograd.grad is grad
    found, torch.autograd.backward = torch.autograd.backward, before
    assert found is before


def test_both_ways_to_call_a_backward_are_heard(original: object) -> None:
    """By the tensor and by the function, with one root and with several."""
    told = Told()
    calls = BackwardCalls(told, told.failed)
    calls.install()
    w = torch.ones(2, requires_grad=True)
    w.sum().backward()
    torch.autograd.backward([w.prod(), w.mean()], inputs=[w])
    calls.remove()
    (w * 2).sum().backward()
    assert told.losses == 3 and w.grad is not None
    assert w.grad.tolist() == [1 + 1 + 0.5 + 2] * 2


def test_derivatives_with_a_graph_are_heard_apart(original: object) -> None:
    """Those without one are not: they leave nothing behind."""
    told, derivatives = Told(), Told()
    calls = BackwardCalls(told, told.failed, derivatives)
    calls.install()
    w = torch.ones(2, requires_grad=True)
    (slope,) = torch.autograd.grad(w.prod(), w, create_graph=True)
    torch.autograd.grad([slope.square().sum()], [w])
    calls.remove()
    torch.autograd.grad(w.prod(), w, create_graph=True)
    assert (told.losses, derivatives.losses) == (0, 1)


def test_a_listener_that_fails_ends_the_telling_not_the_backward(original: object) -> None:
    """Gradients are there all the same; it is told once."""
    told = Told(ValueError("broken"))
    calls = BackwardCalls(told, told.failed)
    calls.install()
    w = torch.ones(2, requires_grad=True)
    for _ in range(2):
        w.sum().backward()
    calls.remove()
    assert told.losses == 1 and told.errors == ["broken"]
    assert w.grad is not None and w.grad.tolist() == [2, 2]


def test_somebody_elses_stand_in_stays(original: Any) -> None:
    """Removed in the wrong order, ours only passes on."""
    told = Told()
    calls = BackwardCalls(told, told.failed)
    calls.install()
    ours = torch.autograd.backward

    def theirs(*args: object, **kwargs: object) -> None:
        ours(*args, **kwargs)

    torch.autograd.backward = theirs  # monkeypatch would put ours there again at its end
    calls.remove()
    assert torch.autograd.backward is theirs
    w = torch.ones(2, requires_grad=True)
    w.sum().backward()
    assert told.losses == 0 and w.grad is not None
    torch.autograd.backward = original


def test_a_loop_is_listened_to_for_losses_at_its_beginning_alone(original: object, tmp_path: Path) -> None:
    """Nothing stays in the place of torch's function once it is known that no loss has wide logits behind it."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    stood_in = []
    with memguard.watch(model, device="cpu", quiet=True, logdir=str(tmp_path)):
        for _ in range(24):
            loss = model(torch.ones(2, 4)).sum()
            stood_in.append(torch.autograd.backward is not original)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    assert stood_in[0] and not any(stood_in[17:])
    assert torch.autograd.backward is original


@pytest.mark.parametrize("first", [0, 1])
def test_two_listeners_end_in_either_order(first: int, original: object) -> None:
    """The one that is left goes on hearing, and the last one leaves torch's own function."""
    tolds = [Told(), Told()]
    calls = [BackwardCalls(told, told.failed) for told in tolds]
    for one in calls:
        one.install()
    w = torch.ones(2, requires_grad=True)
    w.sum().backward()
    calls[first].remove()
    w.sum().backward()
    calls[1 - first].remove()
    w.sum().backward()
    assert torch.autograd.backward is original
    assert [told.losses for told in (tolds[first], tolds[1 - first])] == [1, 2]
