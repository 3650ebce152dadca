"""Teachers inside the model."""

import copy
import linecache

import pytest
import torch
from torch import nn

from memguard.facts import UnusedGraphs
from memguard.probes import inner_frozen
from memguard.probes.inner_frozen import MAX_PARTS, InnerFrozenProbe
from tests.probes.loop import Loop


class Pair(nn.Module):
    """A student, and a teacher whose answer is detached."""

    def __init__(self) -> None:
        super().__init__()
        self.student = nn.Linear(6, 6)
        self.teacher = copy.deepcopy(self.student)
        self.no_grad = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.set_grad_enabled(not self.no_grad):
            target = self.teacher(x)  # asked
        return (self.student(x) - target.detach()).pow(2).mean()


def run(pair: Pair, *, late: bool = False) -> list[UnusedGraphs]:
    optimizer = torch.optim.SGD(pair.student.parameters(), lr=0.1)
    other = torch.optim.SGD(pair.teacher.parameters(), lr=0.1) if late else None
    with Loop(pair, kinds=[InnerFrozenProbe]) as loop:
        for _ in loop.batches(20):
            optimizer.zero_grad()
            pair(torch.randn(4, 6)).backward()
            optimizer.step()
    assert not any(module._forward_hooks for module in pair.modules())
    del other
    return loop.of(UnusedGraphs)


def test_an_inner_teacher_with_gradients_is_told_with_the_line() -> None:
    """No optimizer holds it, no backward enters its graph."""
    (fact,) = run(Pair())
    assert fact.frozen and fact.module == "Linear"
    assert "asked" in linecache.getline(str(fact.place.file), fact.place.line or 0)


def test_an_inner_teacher_without_a_graph_is_silent() -> None:
    """Under no_grad, or frozen."""
    pair = Pair()
    pair.no_grad = True
    assert run(pair) == []
    pair = Pair()
    pair.teacher.requires_grad_(False)
    assert run(pair) == []


def test_a_part_whose_optimizer_steps_later_is_silent() -> None:
    """A generator waits for several steps of its critic."""
    assert run(Pair(), late=True) == []


class Features(nn.Module):
    """Answers by a method alone, through layers that stand in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.head = nn.Linear(6, 6)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return self.head(x)


@pytest.mark.parametrize("used", [False, True])
def test_a_teacher_of_which_only_a_method_is_called_is_found(used: bool) -> None:
    """What the method calls is followed in its place; the line is where the method is asked."""

    class Taught(Pair):
        def __init__(self) -> None:
            super().__init__()
            self.teacher = Features()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            target = self.teacher.features(x)  # its method is asked
            return (self.student(x) - (target if used else target.detach())).pow(2).mean()

    facts = run(Taught())
    assert [fact.place.holder for fact in facts] == ([] if used else ["self.teacher"])
    assert all("its method" in linecache.getline(str(fact.place.file), fact.place.line or 0) for fact in facts)


@pytest.mark.parametrize("used", [False, True])
def test_a_teacher_that_torch_does_not_know_is_found(used: bool) -> None:
    """It stands in a list, to be kept out of the state."""

    class Hiding(Pair):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = [self.teacher]
            del self.teacher

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            target = self.hidden[0](x)
            return (self.student(x) - (target if used else target.detach())).pow(2).mean()

    pair = Hiding()
    optimizer = torch.optim.SGD(pair.student.parameters(), lr=0.1)
    with Loop(pair, kinds=[InnerFrozenProbe]) as loop:
        for _ in loop.batches(20):
            optimizer.zero_grad()
            pair(torch.randn(4, 6)).backward()
            optimizer.step()
    assert bool(loop.of(UnusedGraphs)) is not used
    assert not pair.hidden[0]._forward_hooks


@pytest.mark.parametrize("used", [False, True])
def test_a_teacher_inside_the_loss_is_found(used: bool) -> None:
    """No optimizer holds a weight of the loss, though backwards run through it."""

    class Distill(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.teacher = nn.Linear(6, 6)

        def forward(self, x: torch.Tensor, answer: torch.Tensor) -> torch.Tensor:
            target = self.teacher(x)
            return (answer - (target if used else target.detach())).pow(2).mean()

    student, criterion = nn.Linear(6, 6), Distill()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    with Loop(student, criterion, kinds=[InnerFrozenProbe]) as loop:
        for _ in loop.batches(20):
            optimizer.zero_grad()
            x = torch.randn(4, 6)
            criterion(x, student(x)).backward()
            optimizer.step()
    assert [fact.place.holder for fact in loop.of(UnusedGraphs)] == ([] if used else ["self.teacher"])


def test_few_parts_are_hooked_and_none_of_a_model_with_too_many_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search ends with the last part that it hooks; a huge model is not gone through at all."""

    class Teachers(Pair):
        def __init__(self) -> None:
            super().__init__()
            for number in range(3 * MAX_PARTS):
                self.add_module(f"teacher_{number}", copy.deepcopy(self.student))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            teachers = list(self.children())[2:]
            return super().forward(x) + sum(teacher(x).detach().sum() for teacher in teachers)

    assert len(run(Teachers())) == MAX_PARTS
    monkeypatch.setattr(inner_frozen, "MOST_OWNED", 3)
    assert run(Pair()) == []


class Features(nn.Module):
    """A loss that compares features of a net nobody trains."""

    def __init__(self, *, detached: bool = True) -> None:
        super().__init__()
        self.net = nn.ModuleList([nn.Linear(6, 300), nn.Tanh(), nn.Linear(300, 300), nn.Linear(300, 300)])
        self.detached = detached

    def features(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.net:
            x = part(x)
        return x

    def forward(self, out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        wanted = self.features(target)  # wanted
        return (self.features(out) - (wanted.detach() if self.detached else wanted)).pow(2).mean()


def run_loss(criterion: nn.Module, *, manual: bool = False) -> list[UnusedGraphs]:
    net = nn.Linear(6, 6)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with Loop(net, criterion, kinds=[InnerFrozenProbe]) as loop:
        for _ in loop.batches(24):
            x = torch.randn(4, 6)
            optimizer.zero_grad()
            criterion(net(x), x).backward()
            optimizer.step()
            for weight in criterion.parameters() if manual else ():
                if weight.grad is not None:
                    weight.data -= 0.1 * weight.grad
    return loop.of(UnusedGraphs)


def test_the_target_of_a_loss_on_features_is_told_at_the_call_that_the_output_does_not_take() -> None:
    """The features of the output need their graph, those of the target do not; a list of modules is no call."""
    (fact,) = run_loss(Features())
    assert fact.frozen and fact.module == "ModuleList"
    assert "# wanted" in linecache.getline(str(fact.place.file), fact.place.line or 0)


def test_a_target_through_which_a_backward_runs_for_weights_of_nobody_is_told_with_their_gradients() -> None:
    """Nobody detached it."""
    net = Features(detached=False)
    net.net[0] = nn.Linear(6, 100_000)
    net.net[2] = nn.Linear(100_000, 2)
    net.net[3] = nn.Linear(2, 2)
    (fact,) = run_loss(net)
    assert (fact.gradients_bytes or 0) > 2**20


def test_a_loss_whose_weights_are_trained_by_hand_is_silent() -> None:
    """A step written out, through `.data`, counts no version: the weights themselves say it."""
    net = Features(detached=False)
    net.net[0] = nn.Linear(6, 100_000)
    net.net[2] = nn.Linear(100_000, 2)
    net.net[3] = nn.Linear(2, 2)
    assert run_loss(net, manual=True) == []


def test_a_loss_on_features_with_frozen_weights_or_without_a_graph_is_silent() -> None:
    """The graph of the output's features is needed."""
    frozen = Features()
    frozen.requires_grad_(False)
    assert run_loss(frozen) == []

    class Careful(Features):
        def forward(self, out: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                wanted = self.features(target)
            return (self.features(out) - wanted).pow(2).mean()

    assert run_loss(Careful()) == []


def test_a_frozen_part_above_something_that_is_trained_is_silent() -> None:
    """A prompt lies below it, which the part reads by itself or gets by keyword."""

    class Body(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(6, 300_000)
            self.hidden: list[torch.Tensor] = []

        def forward(self, *, x: torch.Tensor | None = None) -> torch.Tensor:
            out: torch.Tensor = self.layer(self.hidden[0] if x is None else x).mean(-1)
            return out

    class Prompted(nn.Module):
        def __init__(self, *, keyword: bool) -> None:
            super().__init__()
            self.prompt, self.body, self.keyword = nn.Parameter(torch.randn(4, 6)), Body(), keyword

        def forward(self) -> torch.Tensor:
            self.body.hidden[:] = [self.prompt * 2]
            out: torch.Tensor = self.body(x=self.prompt * 2) if self.keyword else self.body()
            return out.pow(2).mean()

    for keyword in (True, False):
        model = Prompted(keyword=keyword)
        optimizer = torch.optim.SGD([model.prompt], lr=0.1)
        with Loop(model, kinds=[InnerFrozenProbe]) as loop:
            for _ in loop.batches(20):
                optimizer.zero_grad()
                model().backward()
                optimizer.step()
        assert loop.of(UnusedGraphs) == []
