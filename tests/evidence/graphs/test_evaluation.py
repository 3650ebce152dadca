from __future__ import annotations

import pytest
import torch
from torch import nn

from memguard.evidence.graphs.evaluation import EvaluationProbe
from memguard.evidence.graphs.old_graphs import GraphsProbe
from memguard.records.facts import RetainedGraphs, UnusedGraphs
from memguard.records.stats import Stage
from tests.evidence.loop import Loop, line_of, train_on


def make(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def test_features_used_from_the_inside_count_as_used() -> None:
    """A perceptual loss reads features by a hook and ignores the output: its backward passes the stem."""
    model, x = make().eval().requires_grad_(False), torch.randn(8, 8, requires_grad=True)
    features: list[torch.Tensor] = []
    model[1].register_forward_hook(lambda module, args, output: features.append(output))
    with Loop(model, kinds=[EvaluationProbe]) as loop:
        for _ in loop.batches(8):
            model(x)
            features.pop().sum().backward()
    assert loop.of(UnusedGraphs) == []


def test_a_reference_model_that_answers_for_a_whole_roll_out_is_a_frozen_model() -> None:
    """Its forwards come in a row, and the steps of the policy after them count for all."""
    policy, reference = make(), make(1).eval()
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
    with Loop(policy, reference, kinds=[EvaluationProbe]) as loop:
        for _ in range(2):
            answers = [reference(torch.randn(2, 8)) for _ in loop.batches(6, Stage.VALIDATION)]
            for number in loop.batches(3):
                policy(torch.randn(2, 8)).sum().backward()
                optimizer.step()
                if number == 1:
                    answers.clear()
    assert [(fact.frozen, fact.count) for fact in loop.of(UnusedGraphs)][:1] == [(True, 6)]


def test_one_of_two_calls_of_a_frozen_model_is_told() -> None:
    """The backward runs through what it makes of the student's answer, and not through its target."""
    student, judge = nn.Linear(8, 8), make(1).eval()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    with Loop(student, judge, kinds=[EvaluationProbe]) as loop:
        for _ in loop.batches(8):
            x = torch.randn(4, 8)
            target = judge(x).detach()  # the target
            train_on(optimizer, (judge(student(x)) - target).square().mean())
    (fact,) = loop.of(UnusedGraphs)
    assert fact.frozen and fact.place.line == line_of("the target")


def test_a_frozen_model_of_which_a_method_is_called_is_one_model() -> None:
    """One fact for its parts, with the bytes of the largest."""
    student, teacher = make(), nn.ModuleDict({"small": make(1), "large": nn.Sequential(make(2), nn.Linear(4, 4))})
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    with Loop(student, *teacher.eval().values(), kinds=[EvaluationProbe]) as loop:
        for _ in loop.batches(8):
            x = torch.randn(4, 8)
            target = (teacher["small"](x) + teacher["large"](x)).detach()
            train_on(optimizer, (student(x) - target).square().mean())
    assert [(fact.module, fact.frozen) for fact in loop.of(UnusedGraphs)] == [("ModuleDict", True)]


def test_a_model_told_as_frozen_stays_frozen() -> None:
    """Of a teacher that was trained before, what was told once is told again, though steps beside it got rarer."""
    teacher, student, x = make(), make(1), torch.randn(8, 8)
    first, second = torch.optim.SGD(teacher.parameters(), lr=0.1), torch.optim.SGD(student.parameters(), lr=0.1)
    with Loop(teacher, student, kinds=[EvaluationProbe]) as loop:
        for _ in loop.batches(4):
            teacher(x).sum().backward()
            first.step()
        teacher.eval()
        for number in loop.batches(150):
            target = teacher(x).detach()
            if number < 30 or number % 2:
                (student(x) - target).square().mean().backward()
                second.step()
    facts = loop.of(UnusedGraphs)
    assert facts and all(fact.frozen for fact in facts)


def test_graphs_that_died_with_a_carried_state_are_no_frozen_model() -> None:
    """A reservoir whose read-out alone is trained: the state is told, and what dies when it is made new is not."""
    cell, readout, x = nn.GRUCell(8, 8), make(1), torch.randn(8, 8)
    optimizer = torch.optim.SGD(readout.parameters(), lr=0.01)
    with Loop(cell, readout, kinds=[GraphsProbe, EvaluationProbe]) as loop:
        state = torch.zeros(8, 8)
        for number in loop.batches(60):
            if number % 30 == 0:
                state = torch.zeros(8, 8)
            state = cell(x, state)
            readout(state.detach()).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert any(fact.carried for fact in loop.of(RetainedGraphs))
    assert loop.of(UnusedGraphs) == []


def test_a_part_trained_within_a_whole_is_no_teacher() -> None:
    """Once it was called by itself, then inside the whole alone; asked beside its training it is evaluated."""

    class Whole(nn.Module):
        def __init__(self, part: nn.Module) -> None:
            super().__init__()
            self.part = part

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.part.forward(x)

    part, x = make(), torch.randn(8, 8)
    whole = Whole(part)
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
    with Loop(whole, part, kinds=[EvaluationProbe]) as loop:
        for number in loop.batches(20):
            train_on(optimizer, (part if number == 0 else whole)(x).sum())
            if number > 1:
                part.eval()
                part(x)  # between its steps
                part.train()
    facts = loop.of(UnusedGraphs)
    assert facts and not any(fact.frozen for fact in facts)


def test_evaluation_between_trainings_of_two_models_is_none() -> None:
    """Each batch trains both, and asks one of them in between."""
    one, other, x = make(), make(1), torch.randn(8, 8)
    optimizer = torch.optim.SGD([*one.parameters(), *other.parameters()], lr=0.1)
    with Loop(one, other, kinds=[EvaluationProbe]) as loop:
        for _ in loop.batches(12):
            train_on(optimizer, (one(x).sum() + other(x).sum()))
            one.eval()
            one(x)  # in between
            one.train()
    (fact,) = loop.of(UnusedGraphs)
    assert not fact.frozen and fact.place.line == line_of("in between")


def test_what_evaluation_builds_on_another_graph_is_not_told() -> None:
    """Generator, then features of what it generated: the first call alone is to be changed."""
    generator, features, x = make().eval(), nn.Linear(4, 2).eval(), torch.randn(8, 8)
    with Loop(generator, features, kinds=[EvaluationProbe]) as loop:
        for _ in loop.batches(6, Stage.VALIDATION):
            features(generator(x))
    assert [fact.module for fact in loop.of(UnusedGraphs)] == ["Sequential"]


class Sampler(nn.Module):
    """A model with methods of its own, of which the parts alone are watched."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        hidden = self.first(z).relu()
        result: torch.Tensor = self.second(hidden)
        return result

    def choose(self, z: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(z)).argmax(1)  # chooses


def test_models_of_one_function_are_told_at_the_end_of_a_short_evaluation() -> None:
    """Where there are two batches, nothing is waited for any longer than the stage."""
    encoder, model = nn.Linear(8, 8).eval(), Sampler().eval()
    with Loop(encoder, model.first, kinds=[EvaluationProbe]) as loop:
        for _ in loop.batches(2, Stage.VALIDATION):
            features = encoder(torch.randn(2, 8)).detach()
            words = [model.choose(features) for _ in range(5)]
    (fact,) = loop.of(UnusedGraphs)
    assert fact.place.line == line_of("chooses") and len(words) == 5


def train(model: nn.Module, loop: Loop) -> None:
    """A few plain steps, that make it a model which is trained in training mode."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in loop.batches(5):
        train_on(optimizer, model(torch.randn(4, 8)).mean())


def evaluate(model: nn.Module, loop: Loop, count: int) -> float:
    """An evaluation that adds up its losses with their graphs."""
    total = torch.zeros(())
    for _ in loop.batches(count, Stage.VALIDATION):
        loss = model(torch.randn(4, 8)).square().mean()  # evaluates
        total = total + loss
    return total.item()


def losses_of(model: nn.Module, loop: Loop, count: int) -> torch.Tensor:
    """Likewise, but the caller gets them and may call backward."""
    total = torch.zeros(())
    for _ in loop.batches(count, Stage.VALIDATION):
        total = total + model(torch.randn(4, 8)).square().mean()
    return total


def test_evaluation_that_keeps_its_graphs_is_told_once_no_backward_can_come() -> None:
    """In four batches where the function gives back a number; where it gives back the sum, a backward may come."""
    model = make()
    with Loop(model, kinds=[EvaluationProbe]) as loop:
        train(model, loop)
        model.eval()
        evaluate(model, loop, 4)
    (fact,) = loop.of(UnusedGraphs)
    assert fact.kept and not fact.frozen and fact.place.line == line_of("evaluates")
    with Loop(model, kinds=[EvaluationProbe]) as loop:
        train(model.train(), loop)
        losses_of(model.eval(), loop, 6).backward()
    assert loop.of(UnusedGraphs) == []


class Diffusion(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.net(x)
        return result

    def sample(self, loop: Loop, count: int) -> torch.Tensor:
        x = torch.randn(4, 8)
        for _ in loop.batches(count, Stage.VALIDATION):
            noise = self.net(x)
            x = x - 0.1 * noise
        return x


def preview(model: Diffusion, loop: Loop, count: int) -> float:
    model.eval()
    image = model.sample(loop, count).clamp(-1, 1)  # samples
    return image.mean().item()


def tuned(model: Diffusion, loop: Loop, count: int) -> None:
    model.eval()
    reward = model.sample(loop, count).mean()
    reward.backward()


def test_a_roll_out_of_a_part_of_a_trained_model_is_told_by_the_fourth_forward() -> None:
    """Each step's graph goes on into the next one; what is trained by a reward at the end is none."""
    model = Diffusion()
    with Loop(model, kinds=[EvaluationProbe]) as loop:
        train(model, loop)
        loop.add(model.net)
        preview(model, loop, 4)
    (fact,) = loop.of(UnusedGraphs)
    assert fact.kept and not fact.frozen and fact.place.line == line_of("samples")
    model = Diffusion()
    with Loop(model, kinds=[EvaluationProbe]) as loop:
        train(model, loop)
        loop.add(model.net)
        tuned(model, loop, 6)
    assert loop.of(UnusedGraphs) == []


class Painter(nn.Module):
    """Answers with a part of it, in a method for training too and in one that evaluation alone calls."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(8, 8)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.decode(z).square()

    def decode(self, z: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.net(z)
        return result

    def paint(self) -> torch.Tensor:
        result: torch.Tensor = self.net(torch.randn(4, 8))
        return result

    def embed(self, z: torch.Tensor) -> torch.Tensor:
        z = self.net(z)
        return z.relu()


@pytest.mark.parametrize(
    ("method", "line"), [("decode", "calls decode"), ("paint", "calls paint"), ("embed", "calls embed")]
)
def test_a_method_that_training_calls_too_is_not_the_line(method: str, line: str) -> None:
    """Nor one of the model that answers: its caller asks."""
    model = Painter()
    with Loop(model.net, kinds=[EvaluationProbe]) as loop:
        train(model, loop)
        model.eval()
        for _ in loop.batches(6, Stage.VALIDATION):
            if method == "decode":
                model.decode(torch.randn(4, 8))  # calls decode
            elif method == "embed":
                model.embed(torch.randn(4, 8))  # calls embed
            else:
                model.paint()  # calls paint
    (fact,) = loop.of(UnusedGraphs)
    assert fact.place.line == line_of(line)


class Estimator:
    """A trainer with methods that ask its model, for training and for validation."""

    def __init__(self) -> None:
        self.net = make()

    def infer(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)[:, :4]

    def weigh(self, x: torch.Tensor) -> tuple[torch.Tensor, float]:
        answer = self.net(x)
        loss = answer.square().mean()
        return loss, (answer > 0).float().mean().item()

    def judge(self, x: torch.Tensor) -> float:
        answer = self.net(x)  # asks and judges
        return answer.mean().item()

    def step(self, x: torch.Tensor, *, train: bool) -> float:
        loss = self.net(x).square().mean()
        if train:
            loss.backward()
        return loss.item()

    def fit(self, loop: Loop) -> None:
        self.net.train()
        for _ in loop.batches(4):
            (self.infer(torch.randn(4, 8)).mean() + self.net(torch.randn(4, 8)).mean()).backward()
            self.weigh(torch.randn(4, 8))[0].backward()
            self.step(torch.randn(4, 8), train=True)

    def validate(self, loop: Loop, by: str) -> None:
        self.net.eval()
        for _ in loop.batches(8, Stage.VALIDATION):
            x = torch.randn(4, 8)
            if by == "infer":
                self.infer(x).mean().item()  # validates by the shared method
            elif by == "weigh":
                self.weigh(x)[0].item()  # validates by the shared loss
            elif by == "judge":
                self.judge(x)
            else:
                self.step(x, train=False)  # does not train


@pytest.mark.parametrize(
    ("by", "line"),
    [
        ("infer", "validates by the shared method"),
        ("weigh", "validates by the shared loss"),
        ("judge", "asks and judges"),
        ("step", "does not train"),
    ],
)
def test_a_trainers_method_that_training_shares_is_not_the_line(by: str, line: str) -> None:
    """Training needs the graphs that it gives back: validation's call is to be changed, where it is no whole step."""
    estimator = Estimator()
    with Loop(estimator.net, kinds=[EvaluationProbe]) as loop:
        estimator.fit(loop)
        estimator.validate(loop, by)
    (fact,) = loop.of(UnusedGraphs)
    assert fact.place.line == line_of(line)


def test_a_target_network_between_two_batches_is_frozen_by_the_steps_that_it_shares() -> None:
    """Without a loader each forward may begin a batch: another model's graph of the same step was used."""
    net, target = make(), make(1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(8, 8)
    with Loop(net, target, kinds=[EvaluationProbe]) as loop:
        for batch in loop.batches(40):
            if batch % 4 == 0:
                out = net(x)
            elif batch % 4 == 2:
                wanted = target(x)  # aside
            elif batch % 4 == 3:
                train_on(optimizer, (out - wanted.detach()).pow(2).mean())
    (fact,) = loop.of(UnusedGraphs)
    assert fact.frozen and fact.place.line == line_of("aside")
