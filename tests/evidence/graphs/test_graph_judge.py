from __future__ import annotations

import torch
from torch import nn

from memguard.autograd.reach import Reach
from memguard.evidence.graphs import graph_contents as graph_judge
from memguard.evidence.graphs.graph_contents import GraphContents
from memguard.evidence.graphs.old_graphs import GraphsProbe
from memguard.records.facts import RetainedGraphs
from tests.evidence.loop import Loop, sees_saved_tensors

KEY = "mark"


def judge_of(*tensors: torch.Tensor) -> GraphContents:
    """One that recognises the graphs of some tensors."""
    for tensor in tensors:
        assert tensor.grad_fn is not None
        tensor.grad_fn.metadata[KEY] = True
    return GraphContents(Reach(KEY, bool), {})


def used() -> torch.Tensor:
    """A sum through which a backward ran, of a leaf of 400 bytes that requires a gradient."""
    loss = torch.zeros(100, requires_grad=True).square().sum()
    loss.backward()
    return loss


def test_a_leaf_and_its_gradient_are_what_a_graph_holds_after_its_backward() -> None:
    """The backward of a gradient penalty frees what was saved: the input and its gradient stay with the loss."""
    losses = [used() for _ in range(3)]
    judge = judge_of(*losses)
    assert [judge(loss) for loss in losses] == [804] * 3
    assert judge.total() == 3 * 804


def test_a_leaf_of_every_graph_is_not_what_they_hold() -> None:
    """An image that is optimized, and the weights of a model nobody watches, live without the graphs."""
    image, weight = torch.zeros(100, requires_grad=True), nn.Parameter(torch.zeros(100))
    losses = [(image + weight).sum() for _ in range(3)]
    for loss in losses:
        loss.backward()
    judge = judge_of(*losses)
    for loss in losses:
        judge(loss)
    assert judge.total() == 3 * 4


def test_those_beyond_the_bound_are_taken_to_be_alike(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Of a long list of graphs some are gone through, and the size is that of all; young ones do not count."""
    monkeypatch.setattr(graph_judge, "MOST_NODES", 10)
    losses = [used() for _ in range(20)]
    judge = judge_of(*losses)
    judge.count([*losses, *(used() for _ in range(5))])
    assert judge.total() == 20 * 804


@sees_saved_tensors
def test_every_element_of_a_long_list_is_sized() -> None:
    """An entropy of every step of ten a batch, without its backward: each counts, though a walk reads a sample."""
    torch.manual_seed(0)
    net = nn.Linear(8, 4)
    optimizer, entropies = torch.optim.SGD(net.parameters(), lr=0.01), []
    with Loop(net, kinds=[GraphsProbe]) as loop:
        for _ in loop.batches(14):
            loss = torch.zeros(())
            for _ in range(10):
                log = net(torch.randn(16, 8)).log_softmax(-1)
                entropies.append((log.exp() * log).sum(1))
                loss = loss - log[:, 0].mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    (fact,) = loop.of(RetainedGraphs)
    each = 64 + 256 + 256  # itself, and both factors
    assert (fact.place.holder, fact.graphs) == ("entropies", 8)
    assert fact.bytes is not None
    assert fact.bytes >= 80 * each
