"""Calls of a model in training whose graphs nobody uses, while backwards run through those of its other calls."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from memguard.evidence.graphs.evaluation import EvaluationProbe
from memguard.evidence.graphs.unused_passes import TrainingPassesProbe
from memguard.records.facts import UnusedGraphs
from tests.evidence.loop import Loop, sees_saved_tensors, statement_of, train_on

Step = Callable[[nn.Module, int], None]


class Net(nn.Module):
    """A trunk and a head; the trunk may be spared."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.head = nn.Sequential(nn.Linear(16, 256), nn.Tanh(), nn.Linear(256, 64)), nn.Linear(64, 1)

    def forward(self, x: torch.Tensor, spared: bool = False) -> torch.Tensor:
        h = self.trunk(x)
        return torch.as_tensor(self.head(h.detach() if spared else h))


def backward(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """What trains it."""
    (model(x) - y).square().mean().backward()


def roll_out(model: nn.Module, index: int) -> None:
    """The values of all that was seen, then some of it to train on."""
    x = torch.randn(4096, 16)
    values = model(x).squeeze(-1)  # wasted
    target = values.detach() + 1
    backward(model, x[:64], target[:64, None])


def pool(model: nn.Module, index: int) -> None:
    """The hardest of a pool are trained on."""
    x, y = torch.randn(4096, 16), torch.randn(4096, 1)
    losses = (model(x) - y).square()  # wasted
    hardest = losses.flatten().topk(64).indices
    backward(model, x[hardest], y[hardest])


def monitored(model: nn.Module, index: int) -> None:
    """Every other batch the loss on held-out data is looked at."""
    backward(model, torch.randn(64, 16), torch.randn(64, 1))
    if index % 2:
        held = torch.randn(4096, 16)
        assert model(held).mean().item() < 1e3  # wasted


def without_graph(model: nn.Module, index: int) -> None:
    """As it should be."""
    x = torch.randn(4096, 16)
    with torch.no_grad():
        values = model(x)
    backward(model, x[:64], values[:64] + 1)


def as_large(model: nn.Module, index: int) -> None:
    """A target of the same size adds nothing to what the training's own graph takes."""
    target = model(torch.randn(4096, 16)).detach()
    backward(model, torch.randn(4096, 16), target)


def spared(model: nn.Module, index: int) -> None:
    """Backwards through the large calls end before they reach the first layer."""
    model(torch.randn(4096, 16), True).square().mean().backward()
    if index % 3 == 0:
        model(torch.randn(16, 16))
    backward(model, torch.randn(64, 16), torch.randn(64, 1))


def late(model: nn.Module, index: int) -> None:
    """A loss that is now and then not finite."""
    loss = model(torch.randn(4096, 16)).square().mean()
    if index % 4:
        loss.backward()
    backward(model, torch.randn(64, 16), torch.randn(64, 1))


def small(model: nn.Module, index: int) -> None:
    """Too little to matter."""
    assert model(torch.randn(192, 16)).mean().item() < 1e3
    backward(model, torch.randn(64, 16), torch.randn(64, 1))


def score(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """What training and roll-outs ask alike."""
    return torch.as_tensor(model(x)).squeeze(-1)


def kept_scores(model: nn.Module, index: int) -> None:
    """Scores of before the update, of the same size, live on beside the graph that is trained."""
    x = torch.randn(4096, 16)
    old = score(model, x)  # wasted
    (score(model, x) - old.detach() - 1).square().mean().backward()


class Gaussian(nn.Module):
    """Answers with a distribution."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Sequential(nn.Linear(16, 256), nn.Tanh(), nn.Linear(256, 4))

    def forward(self, x: torch.Tensor) -> torch.distributions.Normal:
        return torch.distributions.Normal(self.mean(x), 1.0)


def roll_out_of_many_steps(model: nn.Module, index: int) -> None:
    """The scores of before the update, each little, are alive at once."""
    seen = [torch.randn(64, 16) for _ in range(64)]
    old = torch.stack([model(x).log_prob(torch.zeros(4)) for x in seen])  # wasted
    new = model(seen[0]).log_prob(torch.zeros(4))
    (new - old[0].detach()).exp().mean().backward()


def dropped_scores(model: nn.Module, index: int) -> None:
    """The same without their graph, which dies at once."""
    x = torch.randn(4096, 16)
    old = score(model, x).detach()
    (score(model, x) - old - 1).square().mean().backward()


def two_views(model: nn.Module, index: int) -> None:
    """Both are trained on, the first long after the second was made."""
    x = torch.randn(2048, 16)
    first = score(model, x)
    second = score(model, x + 1)
    (first - second.detach()).square().mean().backward()
    score(model, x).mean().backward() if index % 2 else second.mean().backward()


class Policy(nn.Module):
    """Its trunk is trained as a part of it, and asked by itself for values."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.head = nn.Sequential(nn.Linear(16, 256), nn.Tanh(), nn.Linear(256, 64)), nn.Linear(64, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.head(self.trunk(x)))

    def value(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.trunk(x)).squeeze(-1)
        return result


def values(model: Policy, x: torch.Tensor) -> torch.Tensor:
    """The values of a roll-out."""
    return model.value(x).detach()  # wasted


def update(model: Policy, index: int, rows: int = 64) -> None:
    """A roll-out, of which minibatches are trained on."""
    if index % 8 == 0:
        values(model, torch.randn(4096, 16))
    backward(model, torch.randn(rows, 16), torch.randn(rows, 1))


def update_at_once(model: Policy, index: int) -> None:
    """The minibatches are as large as the roll-out: its graph adds nothing."""
    update(model, index, 4096)


def update_by_values(model: Policy, index: int) -> None:
    """The large call is trained too."""
    if index % 8 == 0:
        model.value(torch.randn(4096, 16)).square().mean().backward()
    backward(model, torch.randn(64, 16), torch.randn(64, 1))


def update_without_graph(model: Policy, index: int) -> None:
    """As it should be."""
    with torch.no_grad():
        values(model, torch.randn(4096, 16))
    update(model, 1)


def update_of_several_sizes(model: Policy, index: int) -> None:
    """As a part it is trained on as much, but not at first."""
    update(model, index, 4096 if index > 2 else 64)


def told(step: Step, count: int = 12, kind: Callable[[], nn.Module] = Net) -> list[UnusedGraphs]:
    """What is told of training like that."""
    torch.manual_seed(0)
    model = kind()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with Loop(model, kinds=[EvaluationProbe], device_total_bytes=2**26) as loop:
        if isinstance(model, Policy):
            loop.add(model.trunk)
        for index in loop.batches(count):
            optimizer.zero_grad()
            step(model, index)
            optimizer.step()
    return loop.of(UnusedGraphs)


@sees_saved_tensors
@pytest.mark.parametrize("step", [roll_out, pool, monitored, kept_scores])
def test_a_call_for_its_values_alone_is_told_by_its_line(step: Step) -> None:
    """Its graph always dies unused, and is larger than those that backwards run through, or alive beside them."""
    (fact,) = told(step)
    assert fact.training and fact.alone and fact.count == 3 and (fact.bytes or 0) > 2**22
    assert "# wasted" in statement_of(fact)


@sees_saved_tensors
def test_small_graphs_count_as_many_as_are_alive_at_once() -> None:
    """Of a policy that answers with a distribution."""
    (fact,) = told(roll_out_of_many_steps, 8, Gaussian)
    assert fact.training and fact.alone and fact.alive == 64 and (fact.bytes or 0) >= 64 * 256 * 4
    assert "# wasted" in statement_of(fact)


@sees_saved_tensors
def test_a_part_that_is_asked_by_itself_for_its_values_is_told_by_the_third_time() -> None:
    """The line is the one that asks the method; what its trained graphs take is known from those within the whole."""
    (fact,) = told(update, 24, Policy)  # type: ignore[arg-type]
    assert fact.training and fact.alone and fact.count == 3 and fact.batch <= 17 and (fact.bytes or 0) > 2**22
    assert "# wasted" in statement_of(fact)


@pytest.mark.parametrize("step", [update_at_once, update_by_values, update_without_graph, update_of_several_sizes])
def test_a_part_that_is_used_or_small_beside_the_whole_is_silent(step: Step) -> None:
    """Its large graphs are used, or no larger than those that are."""
    assert told(step, 40, Policy) == []


@pytest.mark.parametrize("step", [without_graph, as_large, spared, late, small, dropped_scores, two_views])
def test_calls_that_are_used_or_small_are_silent(step: Step) -> None:
    """Some are used by a backward through a part of the model, or only sometimes."""
    assert told(step, 24) == []


def make() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    train_on(optimizer, model(torch.randn(8, 8)).sum())


def test_batches_that_are_left_out_are_silent() -> None:
    """Backwards use what the same lines build for other batches: the easy ones are left out, in a row by chance."""
    model, optimizer = make()
    with Loop(model, kinds=[TrainingPassesProbe]) as loop:
        for index in loop.batches(40):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 8)).sum()
            if index >= 20 and index % 10:
                continue
            loss.backward()
            optimizer.step()
    assert loop.of(UnusedGraphs) == []


def test_a_policy_asked_for_single_actions_is_silent() -> None:
    """Its outputs are small beside those that are trained on."""
    model, optimizer = make()
    with Loop(model, kinds=[TrainingPassesProbe]) as loop:
        for _ in loop.batches(4):
            train(model, optimizer)
            for _ in range(6):
                model(torch.randn(1, 8)).argmax().item()
    assert loop.of(UnusedGraphs) == []


def test_a_roll_out_that_carries_its_state_is_silent() -> None:
    """Each forward is given what the last one answered: no pass over data, though its answers are as large."""
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Loop(model, kinds=[TrainingPassesProbe]) as loop:
        for _ in loop.batches(4):
            train(model, optimizer)
            state = torch.randn(8, 8)
            for _ in range(7):
                state = model(state)
            del state
            model(torch.randn(8, 8))
    assert loop.of(UnusedGraphs) == []
