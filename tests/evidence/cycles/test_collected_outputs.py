"""Inputs, and outputs without a graph, that only the collector frees."""

import gc

import torch
from torch import nn

from memguard.evidence.cycles.collected_memory import CollectedOutputsProbe
from memguard.records.facts import FreedByCollector
from tests.evidence.loop import Loop


class Node:
    def __init__(self, state: torch.Tensor, parent: "Node | None" = None) -> None:
        self.state = state
        self.parent = parent
        self.children: list[Node] = []


def search(model: nn.Module, *, circular: bool) -> None:
    root = Node(torch.randn(4, 128))
    for _ in range(6):
        child = Node(model(root.state), root if circular else None)
        root.children.append(child)


def run(*, circular: bool) -> list[FreedByCollector]:
    model = nn.Linear(128, 128)
    gc.collect()
    with Loop(model, kinds=[CollectedOutputsProbe]) as loop, torch.no_grad():
        for index in loop.batches(18):
            search(model, circular=circular)
            if index % 4 == 2:
                gc.collect(0)
    return loop.of(FreedByCollector)


def test_a_tree_without_a_circle_is_silent() -> None:
    """Reference counting frees it before the collector begins."""
    assert run(circular=False) == []


class Batch:
    def __init__(self, x: torch.Tensor, *, circular: bool) -> None:
        self.x = x
        self.owner = self if circular else None


def train(*, circular: bool, whole: torch.Tensor | None = None) -> list[FreedByCollector]:
    model = nn.Linear(128, 8)
    gc.collect()
    with Loop(model, kinds=[CollectedOutputsProbe]) as loop:
        for index in loop.batches(32):
            x = torch.randn(4, 128) if whole is None else whole[index * 4 : index * 4 + 4]
            model(Batch(x, circular=circular).x).sum().backward()
            if index % 4 == 2:
                gc.collect(0)
    return loop.of(FreedByCollector)


def test_a_batch_that_refers_to_itself_is_told() -> None:
    """Inputs hang on a circle too, in training."""
    (fact,) = train(circular=True)
    assert fact.outputs >= 16 and fact.place.holder == "Batch.owner" and fact.bytes


def test_inputs_without_a_circle_are_silent() -> None:
    """Batches that reference counting frees, and slices of one tensor that stays, which circles may hold."""
    assert train(circular=False) == []
    assert train(circular=True, whole=torch.randn(128, 128)) == []
