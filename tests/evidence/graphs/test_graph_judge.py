"""Which graphs hold old ones, outlive their turn, or can have no backward any more."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from memguard.autograd.reach import Reach
from memguard.evidence.graph_tracker import KEY
from memguard.evidence.graphs import graph_contents as graph_judge
from memguard.evidence.graphs.graph_contents import GraphContents, needs_changed
from memguard.evidence.kept.outputs import outlives_its_turn
from memguard.torch_objects.storages import owned_storages
from tests.evidence.loop import sees_saved_tensors


def judge_of(*tensors: torch.Tensor) -> GraphContents:
    """One that recognises the graphs of some tensors."""
    for tensor in tensors:
        assert tensor.grad_fn is not None
        tensor.grad_fn.metadata[KEY] = SimpleNamespace(mark=SimpleNamespace(batch=0))
    return GraphContents(Reach(KEY, bool), {})


def used() -> torch.Tensor:
    """A sum through which a backward ran, of a leaf of 400 bytes that requires a gradient."""
    loss = torch.zeros(100, requires_grad=True).square().sum()
    loss.backward()
    return loss


def test_those_beyond_the_bound_are_taken_to_be_alike(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Of a long list of graphs some are gone through, and the size is that of all; young ones do not count."""
    monkeypatch.setattr(graph_judge, "MOST_NODES", 10)
    losses = [used() for _ in range(20)]
    judge = judge_of(*losses)
    judge.count([*losses, *(used() for _ in range(5))])
    assert judge.total() == 20 * 804


@pytest.mark.parametrize("in_data_set", [False, True])
def test_what_others_hold_as_well_is_not_counted(in_data_set: bool) -> None:
    """An input in a list of batches, or a view of a data set, lives without the graph that saved it."""
    weight, data = torch.ones(100, requires_grad=True), torch.ones(200)
    inputs = [data[:100]] if in_data_set else [torch.ones(100)]
    kept, alone = (inputs[0] * weight).sum(), (torch.ones(100) * weight).sum()
    judge = judge_of(kept, alone)
    judge.count([kept, alone, data if in_data_set else inputs[0]])
    assert judge.total() == 4 + 4 + 400  # two sums, and the input that nothing else holds


def test_a_sum_is_of_all_batches_that_lead_to_it() -> None:
    """It reaches the graphs of the newest batch too, which are not asked about: these have their share."""
    weights = [torch.ones(100, requires_grad=True) for _ in range(4)]
    total = torch.zeros(())
    for batch, weight in enumerate(weights):
        loss = weight.square().sum()
        loss.grad_fn.metadata[KEY] = SimpleNamespace(mark=SimpleNamespace(batch=batch))
        total = total + loss
    judge = GraphContents(Reach(KEY, lambda sentinel: sentinel.mark.batch < 3), {})
    judge.count([total])
    assert judge.total() == 4 + 4 * 400
    assert judge.of_batches(3) == judge.total() * 3 // 4


ARCHIVE: list[torch.Tensor] = []


class Node:
    def __init__(self, state: torch.Tensor) -> None:
        self.state = state
        self.children: list[Node] = []

    def grow(self) -> bool:
        """As a search does: asked deep inside, where `self` is all that the frame knows."""
        self.children.append(Node(self.state.clone()))
        wanted = {id(child.state) for child in self.children}
        return outlives_its_turn(lambda tensor: id(tensor) in wanted)


def search(keep: list[Node]) -> bool:
    root = Node(torch.ones(2))
    keep.append(root)
    return root.grow()


def test_what_is_not_called_in_a_loop_lasts() -> None:
    """One search alone is as long as the run."""
    lasts = search([])
    assert lasts


def test_a_global_lasts() -> None:
    """Wherever the call stands."""
    for _ in range(1):
        ARCHIVE.append(torch.ones(3))
        assert _ask(ARCHIVE[0])
        ARCHIVE.clear()


def _ask(tensor: torch.Tensor) -> bool:
    return outlives_its_turn(lambda other: other is tensor)


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))


@sees_saved_tensors
@pytest.mark.parametrize(
    ("make", "needs"),
    [(net, True), (lambda: nn.LSTMCell(4, 4), False), (lambda: nn.Linear(4, 4), False), (lambda: nn.GRU(4, 4), True)],
)
def test_a_graph_is_spent_once_a_weight_that_it_saved_was_changed(make: Callable[[], nn.Module], needs: bool) -> None:
    """An optimizer steps in place. The first layer's weight is not needed: nobody asks for the input's gradient."""
    model = make()
    output = model(torch.ones(2, 4))
    node = (output if isinstance(output, torch.Tensor) else output[0]).grad_fn
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    owned = owned_storages([model])
    assert not needs_changed(node, owned)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert needs_changed(node, owned) is needs


def test_a_graph_that_a_hook_saved_is_not_asked_for() -> None:
    """It would run the user's code."""
    model, asked = net(), []

    def unpack(tensor: torch.Tensor) -> torch.Tensor:
        asked.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        output = model(torch.ones(2, 4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    assert not needs_changed(output.grad_fn, owned_storages([model])) and asked == []
