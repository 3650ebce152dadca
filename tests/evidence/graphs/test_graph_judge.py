from __future__ import annotations

import torch

from memguard.autograd.reach import Reach
from memguard.evidence.graphs import graph_contents as graph_judge
from memguard.evidence.graphs.graph_contents import GraphContents

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


def test_those_beyond_the_bound_are_taken_to_be_alike(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Of a long list of graphs some are gone through, and the size is that of all; young ones do not count."""
    monkeypatch.setattr(graph_judge, "MOST_NODES", 10)
    losses = [used() for _ in range(20)]
    judge = judge_of(*losses)
    judge.count([*losses, *(used() for _ in range(5))])
    assert judge.total() == 20 * 804
