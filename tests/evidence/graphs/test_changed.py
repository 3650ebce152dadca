"""Graphs through which no backward can run any more, by the weights that they need."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from memguard.evidence.graphs.graph_contents import needs_changed
from memguard.torch_objects.storages import owned_storages
from tests.evidence.loop import sees_saved_tensors


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
