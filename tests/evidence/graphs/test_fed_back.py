"""A state that a model makes from itself."""

import sys

import pytest
import torch
from torch import nn

from memguard.evidence.graphs.graph_holders import is_fed_back, is_filled_by_model
from memguard.records.facts import Place


class Memory(nn.Module):
    """Has a state that its caller keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 4)

    def new(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """The next state."""
        return torch.as_tensor(self.cell(x, state))


def add(total: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
    """A running sum."""
    return total + loss


class Owner:
    """Has the model as an attribute."""

    def __init__(self) -> None:
        self.model = Memory()

    def told(self, source: str) -> bool:
        """Whether a statement in this method would count."""
        model = self.model
        frame = sys._getframe()
        assert model is not None
        return is_fed_back(Place(file=__file__, line=1, source=source), [frame])


@pytest.mark.parametrize(
    "source",
    [
        'carry["mem"] = model.new(h.detach(), carry["mem"])  # kept',
        "state = model.new(x, state=state)",
        "self.state = self.model.new(x, self.state)",
        "h = self.model.cell(x, h)",
        "out, state = model(x, state)",
        "out, (h, c) = model(x, (h, c))",
        "h, c = model.cell(x, h, state=c)",
    ],
)
def test_what_a_model_makes_from_itself_is_a_state(source: str) -> None:
    """A method of a model, or a part of it, takes what stood there before."""
    assert Owner().told(source)


@pytest.mark.parametrize(
    "source",
    [
        "total = add(total, loss)",
        "total = torch.add(total, loss)",
        "self.average = 0.9 * self.average + 0.1 * loss",
        "self.total = self.add(self.total, loss)",
        "last = model.new(x, state)",
        "out, last = model(x, (h, c))",
        "losses = losses + [loss]",
        "total += loss",
        "state = model.new(",
    ],
)
def test_a_running_sum_is_none(source: str) -> None:
    """Nor is what is made from other things, or what cannot be read."""
    assert not Owner().told(source)


@pytest.mark.parametrize(
    ("place", "filled"),
    [
        (Place(file=__file__, line=1, function="Layer.forward", source="self.k = cat(self.k, k)"), True),
        (Place(file=__file__, line=1, function="Cache.extend", caller_function="Layer.forward"), True),
        (Place(file=__file__, line=1, function="write", source="logits = model(token, cache)"), True),
        (Place(file=__file__, line=1, function="write", source="logits, cache = model(token, cache)"), True),
        (Place(file=__file__, line=1, function="write", source="kept = torch.cat([kept, logits])"), False),
        (Place(file=__file__, line=1, function="write", source="kept = model.name"), False),
        (Place(file=__file__, line=1, function="write"), False),
    ],
)
def test_what_the_models_own_forward_keeps_is_filled_by_it(place: Place, filled: bool) -> None:
    """Where the forward runs, where it calls what keeps, or where it is called."""
    model = nn.Linear(2, 2)
    assert model.training and is_filled_by_model(place, [sys._getframe()]) is filled
