"""A state that is carried over segments with no step between them, and what looks like one."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from memguard.evidence.graphs.old_graphs import GraphsProbe
from memguard.records.facts import RetainedGraphs, SavedAfterBackward
from tests.evidence.loop import Loop, sees_saved_tensors


class Outside(nn.Module):
    """As a model that is given its state."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(4, 4)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out: tuple[torch.Tensor, torch.Tensor] = self.cell(x, state)
        return out


@sees_saved_tensors
def test_a_backward_that_keeps_its_graph_for_a_window_is_silent() -> None:
    """It is kept for the backwards that follow, as it is meant."""
    model, window = nn.GRU(32, 32), torch.zeros(1, 64, 32)
    with Loop(model, kinds=[GraphsProbe]) as loop:
        for index in loop.batches(24):
            if index % 8 == 0:
                window = window.detach()
            out, window = model(torch.randn(64, 64, 32), window)
            out.mean().backward(retain_graph=True)
    assert loop.of(SavedAfterBackward) == []


def window_of_twelve() -> Callable[[int], None]:
    """Cut after every twelfth segment, as it is meant: the steps come later."""
    model, kept = Outside(), {"state": torch.zeros(1, 2, 4)}

    def step(index: int) -> None:
        if index % 12 == 0:
            kept["state"] = kept["state"].detach()
        out, kept["state"] = model(torch.randn(3, 2, 4), kept["state"])
        out.mean().backward(retain_graph=index % 12 < 11)

    return step


def window_of_fourteen() -> Callable[[int], None]:
    """Cut somewhere else than in the loop that carries it."""
    model, kept = Outside(), {"state": torch.zeros(1, 2, 4)}

    def cut() -> None:
        kept["state"] = kept["state"].detach()

    def step(index: int) -> None:
        if index % 14 == 0:
            cut()
        out, kept["state"] = model(torch.randn(3, 2, 4), kept["state"])
        out.mean().backward(retain_graph=True)

    return step


def one_backward_for_all() -> Callable[[int], None]:
    """Segments whose losses are summed."""
    model, kept = Outside(), {"state": torch.zeros(1, 2, 4), "loss": torch.zeros(())}

    def step(index: int) -> None:
        out, kept["state"] = model(torch.randn(3, 2, 4), kept["state"])
        kept["loss"] = kept["loss"] + out.mean()
        if index == 39:
            kept["loss"].backward()

    return step


def heads_on_shared_features() -> Callable[[int], None]:
    """One task after the other, each with a backward through the encoder, and all losses kept to the end."""
    encoder, head = nn.Linear(4, 4), nn.Linear(4, 4)
    features, losses = list[torch.Tensor](), list[torch.Tensor]()

    def step(index: int) -> None:
        if not index:
            features.append(encoder(torch.ones(2, 4)))
        losses.append(head(features[0]).mean())
        losses[-1].backward(retain_graph=True)

    return step


def losses_kept() -> Callable[[int], None]:
    """Micro-batches whose losses a list keeps until the step."""
    model, losses = nn.Linear(4, 4), list[torch.Tensor]()

    def step(index: int) -> None:
        losses.append(model(torch.ones(2, 4)).mean())
        losses[-1].backward(retain_graph=True)

    return step


@pytest.mark.parametrize(
    "make", [window_of_twelve, window_of_fourteen, one_backward_for_all, heads_on_shared_features, losses_kept]
)
def test_what_is_no_chain_is_silent(make: Callable[[], Callable[[int], None]]) -> None:
    """Backwards run through older graphs for a while, once, or through one that is shared."""
    step = make()
    cells = step.__closure__ or ()
    models = [cell.cell_contents for cell in cells if isinstance(cell.cell_contents, nn.Module)]
    with Loop(*models, kinds=[GraphsProbe]) as loop:
        for index in loop.batches(40):
            step(index)
    assert loop.of(RetainedGraphs) == []


class Actor:
    """Acts by a model in every second batch, each of which trains it on something else."""

    def __init__(self) -> None:
        self.model = Outside()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.hidden = torch.zeros(1, 2, 4)

    def act(self) -> None:
        _, self.hidden = self.model(torch.randn(1, 2, 4), self.hidden)  # carried

    def learn(self) -> None:
        out, _ = self.model(torch.randn(3, 2, 4), torch.zeros(1, 2, 4))
        out.mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class Cutting(Actor):
    """Its state has a graph of twelve batches at most."""

    window = torch.zeros(1, 2, 4)

    def act(self) -> None:
        _, self.window = self.model(torch.randn(1, 2, 4), self.window)

    def cut(self) -> None:
        self.window = self.window.detach()


class Beginning(Actor):
    """Its episodes end."""

    episode = torch.zeros(1, 2, 4)

    def act(self) -> None:
        _, self.episode = self.model(torch.randn(1, 2, 4), self.episode)

    def cut(self) -> None:
        self.episode = torch.zeros(1, 2, 4)


@pytest.mark.parametrize("kind", [Cutting, Beginning])
def test_a_state_at_intervals_that_is_begun_anew_is_silent(kind: type[Cutting | Beginning]) -> None:
    """A window may be meant: that takes as many batches as ever."""
    actor = kind()
    with Loop(actor.model, kinds=[GraphsProbe]) as loop:
        for index in loop.batches(40):
            if index % 12 == 0:
                actor.cut()
            if index % 2 == 0:
                actor.act()
                actor.act()
            actor.learn()
    assert loop.of(RetainedGraphs) == []
