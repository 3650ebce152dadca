"""A memory that a module's forward reads and writes back, and what only looks like one."""

import pytest
import torch
from torch import nn

from memguard.evidence.graphs.old_graphs import GraphsProbe
from memguard.records.facts import RetainedGraphs
from tests.evidence.loop import Loop, statement_of, train_on


class Base(nn.Module):
    """Has the layers, and a memory that begins empty."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.gate, self.head = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(12, 4)
        self.memory: torch.Tensor | None = None

    def answer(self, h: torch.Tensor, read: torch.Tensor) -> torch.Tensor:
        """From the features and what was read."""
        return torch.as_tensor(self.head(torch.cat([h, read.mean(0).expand(h.shape[0], -1)], 1)))


class Average(Base):
    """A running mean of features goes over the batches with its graph, whatever reads it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.embed(x))
        if self.memory is None:
            self.memory = h.detach()
        old = self.memory.to(x.device)
        self.memory = 0.9 * old + 0.1 * h  # kept
        return self.answer(h, h)


class Weighted(Base):
    """A running mean of one number weighs it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.embed(x))
        if self.memory is None:
            self.memory = torch.ones(())
        weight = 1 / self.memory.detach()
        self.memory = 0.9 * self.memory + 0.1 * h.mean()  # kept
        return self.answer(h, h * weight)


class Queue(Base):
    """What comes is joined to what is there, and the oldest goes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.relu(self.embed(x))
        queue = torch.zeros(64, 6) if self.memory is None else self.memory
        read = queue.detach()
        self.memory = torch.cat([h, queue])[:96]  # kept
        return self.answer(h, read)


def told(model: nn.Module) -> list[RetainedGraphs]:
    """What is told of training it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Loop(model, kinds=[GraphsProbe]) as loop:
        for _ in loop.batches(20):
            train_on(optimizer, model(torch.randn(8, 4)).sum())
    return loop.of(RetainedGraphs)


def test_a_memory_that_forward_reads_and_writes_is_a_carried_state() -> None:
    """It is detached where it is read, not where it is written: no output's graph shows that it is carried."""
    (fact,) = told(Average())
    assert fact.carried and "# kept" in statement_of(fact) and fact.place.holder == "Average.memory"


@pytest.mark.parametrize("kind", [Weighted, Queue])
def test_a_mean_of_numbers_or_a_queue_is_none(kind: type[nn.Module]) -> None:
    """They are kept rather than carried."""
    (fact,) = told(kind())
    assert not fact.carried and "# kept" in statement_of(fact)


class Nodes(nn.Module):
    """One for each node of a graph: never called itself, a part is and a method."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.cell = nn.Linear(4, 6), nn.GRUCell(6, 6)
        self.state = torch.zeros(32, 6)

    def get(self, index: torch.Tensor) -> torch.Tensor:
        return self.state[index].detach()

    def update(self, index: torch.Tensor, message: torch.Tensor) -> torch.Tensor:
        new = self.cell(message, self.get(index))
        spread = torch.zeros_like(self.state).index_copy(0, index, new)
        self.state = 0.5 * self.state + spread  # kept
        return torch.as_tensor(new)


class Rows(Nodes):
    """Rows of the table, made from what they were."""

    def get(self, index: torch.Tensor) -> torch.Tensor:
        return self.state[index].detach()

    def update(self, index: torch.Tensor, message: torch.Tensor) -> torch.Tensor:
        new = self.cell(message, self.get(index))
        self.state[index] = new  # kept in rows
        return torch.as_tensor(new)


class Bank(Nodes):
    """Rows that are made of the messages alone, like elements of a list."""

    def update(self, index: torch.Tensor, message: torch.Tensor) -> torch.Tensor:
        new = self.cell(message)
        self.state[index] = new  # kept in a bank
        return torch.as_tensor(new)


@pytest.mark.parametrize(("kind", "carried"), [(Nodes, True), (Rows, True), (Bank, False)])
def test_a_memory_of_what_is_never_called(kind: type[Nodes], carried: bool) -> None:
    """It is found by the variable of the loop."""
    nodes = kind()
    optimizer = torch.optim.SGD(nodes.parameters(), lr=0.1)
    with Loop(nodes.message, kinds=[GraphsProbe]) as loop:
        for _ in loop.batches(20):
            train_on(optimizer, nodes.update(torch.randperm(32)[:8], nodes.message(torch.randn(8, 4))).sum())
    (fact,) = loop.of(RetainedGraphs)
    assert fact.carried is carried and "# kept" in statement_of(fact)


@pytest.mark.parametrize(("size", "carried"), [(6, True), (1, False)])
def test_a_moving_average_in_a_variable_is_carried(size: int, carried: bool) -> None:
    """Where the loop computes with it, also without its graph; of single numbers it is kept."""
    net, centre = nn.Linear(4, size), torch.zeros(size)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with Loop(net, kinds=[GraphsProbe]) as loop:
        for _ in loop.batches(20):
            z = net(torch.randn(8, 4))
            train_on(optimizer, (z - centre.detach()).square().mean())
            centre = torch.tanh(0.9 * centre + 0.1 * z.mean(0))  # kept
    (fact,) = loop.of(RetainedGraphs)
    assert fact.carried is carried and "# kept" in statement_of(fact)
