from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from memguard.autograd.reach import Reach
from memguard.evidence.graph_tracker import KEY
from memguard.evidence.graphs import graph_contents as graph_judge
from memguard.evidence.graphs.graph_contents import GraphContents


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
