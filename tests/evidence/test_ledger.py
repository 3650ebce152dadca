from __future__ import annotations

import torch
from torch import nn

from memguard.evidence.graph_tracker import NEVER, ForwardGraph, GraphTracker
from memguard.heap.containers import tensors_in
from memguard.records.stats import Stage


def forward(ledger: GraphTracker, batch: int) -> torch.Tensor:
    """What a forward of a batch gives, marked."""
    output = torch.ones(2, requires_grad=True) * 2
    ledger.mark((output,), ForwardGraph(module=1, batch=batch, stage=Stage.TRAIN, training=True, steps=batch))
    return output


def test_the_oldest_graph_is_known_by_its_batch() -> None:
    """Never later than it is, and after `settle` just so: also of a graph that came after none was left."""
    ledger = GraphTracker()
    assert ledger.oldest == NEVER
    first, second = forward(ledger, 3), forward(ledger, 4)
    assert ledger.oldest == 3
    del first
    assert ledger.oldest <= 4
    ledger.settle()
    assert ledger.oldest == 4 and len(ledger.died) == 1
    del second
    ledger.settle()
    assert ledger.oldest == NEVER
    third = forward(ledger, 9)
    assert ledger.oldest == 9 and third.grad_fn is not None
    ledger.forget()
    assert ledger.oldest == NEVER


def test_tensors_are_found_in_a_nest_to_some_depth() -> None:
    """A tensor by itself, at any depth that is asked for, and no more than 64 of them."""
    one, two = torch.ones(1), torch.ones(2)
    assert list(tensors_in(one, 0)) == [one]
    assert list(tensors_in((one, {"two": [two]}, "text", 3))) == [one, two]
    assert list(tensors_in([one, [two]], 1)) == [one]
    assert len(list(tensors_in([one] * 100))) == 64


def test_a_gradient_of_the_marked_tensor_itself_uses_its_graph() -> None:
    """Of an embedding that is attacked, say: torch stops there, and does not run the node that made it."""
    ledger, layer = GraphTracker(), nn.Linear(2, 2)
    marks = []
    for wanted in ("weight", "output", "nothing"):
        output = layer(torch.ones(1, 2))
        mark = ForwardGraph(module=1, batch=1, stage=Stage.TRAIN, training=True, steps=1)
        ledger.mark((output,), mark)
        if wanted != "nothing":
            torch.autograd.grad(output.sin().sum(), output if wanted == "output" else layer.weight)
        marks.append(mark)
    assert [(mark.used, mark.uses) for mark in marks] == [(True, 1), (True, 1), (False, 0)]


def test_a_torch_without_that_way_of_its_own_is_asked_for_a_hook_with_a_handle() -> None:
    """What `Tensor.register_hook` calls has no public name."""
    ledger, layer = GraphTracker(), nn.Linear(2, 2)
    ledger._bearer = object()  # nothing can be set on it
    output = layer(torch.ones(1, 2))
    mark = ForwardGraph(module=1, batch=1, stage=Stage.TRAIN, training=True, steps=1)
    ledger.mark((output,), mark)
    output.sum().backward()
    assert mark.used and ledger._bearer is None
