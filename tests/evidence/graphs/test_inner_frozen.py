"""Teachers inside the model."""

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from memguard.evidence.graphs import frozen_parts as inner_frozen
from memguard.evidence.graphs.frozen_parts import MAX_PARTS, InnerFrozenProbe
from memguard.evidence.graphs.unused_gradients import UntakenGradientsProbe
from memguard.heap.frames import user_frames
from memguard.records.facts import UntakenGradients, UnusedGraphs
from tests.evidence.loop import Loop, statement_of, train_on
from tests.hooks import hooks_inside, hooks_on


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
            train_on(optimizer, pair(torch.randn(4, 6)))
    assert not hooks_inside(pair)
    del other
    return loop.of(UnusedGraphs)


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
    assert [(fact.place.holder, fact.gradients_bytes is not None) for fact in facts] == [("self.teacher", used)]
    assert all("its method" in statement_of(fact) for fact in facts)


class Probed(nn.Module):
    """A head on a backbone, with or without an adapter before it."""

    def __init__(self, *, adapted: bool = False) -> None:
        super().__init__()
        self.adapter = nn.Linear(6, 6) if adapted else nn.Identity()
        self.backbone, self.student = nn.Sequential(nn.Linear(6, 6), nn.Tanh()), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.backbone(self.adapter(x))  # asked
        return torch.as_tensor(self.student(features)).pow(2).mean()


def probe(model: Probed, trained: list[nn.Module], after: Callable[[Probed], object]) -> list[UnusedGraphs]:
    optimizer = torch.optim.SGD([p for module in trained for p in module.parameters()], lr=0.1)
    with Loop(model, kinds=[InnerFrozenProbe]) as loop:
        for _ in loop.batches(20):
            train_on(optimizer, model(torch.randn(4, 6)))
            after(model)
    return loop.of(UnusedGraphs)


def test_a_backbone_that_is_needed_is_silent() -> None:
    """What lies before it is trained; its weights change by hand; somebody takes its gradients."""
    model = Probed(adapted=True)
    assert probe(model, [model.student, model.adapter], lambda model: None) == []

    def by_hand(model: Probed) -> None:
        with torch.no_grad():
            for parameter in model.backbone.parameters():
                parameter.sub_(0.1 * torch.as_tensor(parameter.grad))
                torch.as_tensor(parameter.grad).zero_()

    model = Probed()
    assert probe(model, [model.student], by_hand) == []
    assert probe(model, [model.student], lambda model: model.backbone.zero_grad()) == []


DROPPED = """
def train(model, optimizer, batches):
    for batch in batches:
        model.zero_grad()
        model(batch).backward(){read}
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("read", "copies", "told"),
    [("", False, 1), ("; norm = model.backbone[0].weight.grad.norm()", False, 0), ("", True, 0)],
)
def test_gradients_that_are_cleared_served_for_nothing_where_no_file_reads_one(
    read: str, copies: bool, told: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``model.zero_grad()`` clears those of the backbone too, which no optimizer has; one may step on copies of it."""
    script = tmp_path / "script.py"
    script.write_text(DROPPED.format(read=read))
    monkeypatch.setattr(inner_frozen, "user_files", lambda: [])
    monkeypatch.setattr(
        inner_frozen,
        "user_frames",
        lambda *start: [frame for frame in user_frames(*start) if frame.f_code.co_filename == str(script)],
    )
    scope: dict[str, Any] = {}
    exec(compile(script.read_text(), str(script), "exec"), scope)
    model = Probed()
    copied = [parameter.detach().clone() for parameter in model.backbone.parameters() if copies]
    optimizer = torch.optim.SGD([*model.student.parameters(), *copied], lr=0.1)
    with Loop(model, kinds=[InnerFrozenProbe]) as loop:
        scope["train"](model, optimizer, (torch.randn(4, 6) for _ in loop.batches(20)))
    assert len(loop.of(UnusedGraphs)) == told


class Compared(nn.Module):
    """A model whose answer a network inside it compares with a target, or goes over twice."""

    def __init__(self, *, twice: bool = False) -> None:
        super().__init__()
        self.twice, self.student = twice, nn.Linear(6, 6)
        self.features = nn.Sequential(nn.Linear(6, 6), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wanted = self.features(x)  # asked
        made = self.student(wanted if self.twice else x)
        return torch.as_tensor((self.features(made) - wanted).pow(2).mean())


@pytest.mark.parametrize("twice", [False, True])
def test_a_network_that_compares_needs_no_graph_of_the_target(*, twice: bool) -> None:
    """The other call of it needs its graph. Where the target leads to that, both do."""
    model = Compared(twice=twice)
    optimizer = torch.optim.SGD(model.student.parameters(), lr=0.1)
    with Loop(model, kinds=[InnerFrozenProbe]) as loop:
        for _ in loop.batches(20):
            train_on(optimizer, model(torch.randn(4, 6)))
    facts = loop.of(UnusedGraphs)
    assert len(facts) == (not twice)
    assert all("asked" in statement_of(fact) for fact in facts)


class Asker:
    """Has a teacher, and asks it."""

    def __init__(self, teacher: nn.Module) -> None:
        self.teacher = teacher

    def ask(self, x: torch.Tensor) -> object:
        """What it says."""
        return self.teacher(x)


def ask(teacher: nn.Module, x: torch.Tensor) -> object:
    return teacher(x)


HIDDEN: dict[str, Callable[[nn.Module], Any]] = {
    "list": lambda teacher: [teacher],
    "partial": lambda teacher: functools.partial(ask, teacher),
    "closure": lambda teacher: lambda x: teacher(x),
    "method": lambda teacher: Asker(teacher).ask,
    "object": Asker,
    "partial of a method of an object": lambda teacher: functools.partial(Asker(teacher).ask),
}


@pytest.mark.parametrize("how", HIDDEN)
@pytest.mark.parametrize("used", [False, True])
def test_a_teacher_that_torch_does_not_know_is_found(used: bool, how: str) -> None:
    """It is hidden, to be kept out of the state. Where its answer is not detached it gets gradients, for nothing."""
    teachers: list[nn.Module] = []

    class Hiding(Pair):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = HIDDEN[how](self.teacher)
            teachers.append(self.teacher)
            del self.teacher

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = self.hidden
            target = hidden[0](x) if how == "list" else hidden.ask(x) if how == "object" else hidden(x)
            return (self.student(x) - (target if used else target.detach())).pow(2).mean()

    pair = Hiding()
    optimizer = torch.optim.SGD(pair.student.parameters(), lr=0.1)
    with Loop(pair, kinds=[InnerFrozenProbe]) as loop:
        for _ in loop.batches(20):
            train_on(optimizer, pair(torch.randn(4, 6)))
    (fact,) = loop.of(UnusedGraphs)
    assert (fact.gradients_bytes is not None) is used
    assert not hooks_on(teachers[0])


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


class Around(nn.Module):
    """A teacher that was trained by itself before, and a student, in one model."""

    def __init__(self, teacher: Features, how: str) -> None:
        super().__init__()
        self.teacher, self.student, self.how = teacher, nn.Linear(6, 6), how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        target = self.teacher.features(x) if self.how != "not called" else x  # trained before
        return (self.student(x) - (target if self.how == "used" else target.detach())).pow(2).mean()


class Standing(Features):
    """May be called as well."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.features(x)


def steps(loop: Loop, model: nn.Module, count: int, *, parts: nn.Module | None = None, beside: bool = False) -> None:
    optimizer = torch.optim.SGD((parts or model).parameters(), lr=0.1)
    for _ in loop.batches(count):
        optimizer.zero_grad()
        x = torch.randn(4, 6)
        loss = model(x).square().mean()
        if beside and isinstance(model, Around):
            loss = loss + model.teacher(x).mean()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("how", ["detached", "used", "not called", "called by itself"])
def test_a_teacher_from_an_earlier_training_is_found_in_the_model_around_it(how: str) -> None:
    """It was watched itself then. Not called, or called by itself in the later training, it is left alone."""
    teacher = Standing()
    with Loop(teacher, kinds=[InnerFrozenProbe]) as loop:
        steps(loop, teacher, 12)
        around = Around(teacher, how)
        loop.add(around)
        steps(loop, around, 20, parts=around.student, beside=how == "called by itself")
    facts = loop.of(UnusedGraphs)
    assert [fact.place.holder for fact in facts] == (["self.teacher"] if how in ("detached", "used") else [])
    assert all((fact.gradients_bytes is not None) is (how == "used") for fact in facts)
    assert all("trained before" in statement_of(fact) for fact in facts)


def test_parts_trained_in_turn_by_optimizers_made_anew_are_left_alone() -> None:
    """The model is the same in all phases: who rests in one is trained in the next."""

    class Turns(Pair):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.student(x) - self.teacher(x) if self.first else self.student(x).detach() - self.teacher(x)

        first = True

    model = Turns()
    with Loop(model, kinds=[InnerFrozenProbe]) as loop:
        steps(loop, model, 8)
        for _ in range(3):
            model.first = False
            steps(loop, model, 8, parts=model.teacher)
            model.first = True
            steps(loop, model, 8, parts=model.student)
    assert loop.of(UnusedGraphs) == []


def test_a_small_part_of_the_gradients_is_left_to_the_whole() -> None:
    """Adapters on weights that are not frozen: the stem begins the graph, most gradients lie behind the adapter."""

    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.adapter, self.base = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 60)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.base(self.adapter(self.stem(x)))).pow(2).mean()

    model = Adapted()
    optimizer = torch.optim.SGD(model.adapter.parameters(), lr=0.1)
    with Loop(model, kinds=[InnerFrozenProbe, UntakenGradientsProbe]) as loop:
        for _ in loop.batches(20):
            train_on(optimizer, model(torch.randn(4, 6)))
    (whole,) = loop.of(UntakenGradients)
    assert loop.of(UnusedGraphs) == [] and whole.parameters == 4
