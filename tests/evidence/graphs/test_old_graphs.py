from __future__ import annotations

import copy
import itertools
import pickle
from collections import OrderedDict, deque
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import memguard
from memguard.evidence.graphs.old_graphs import GraphsProbe
from memguard.evidence.sampling_budget import SamplingBudget
from memguard.records.facts import GradientsWithGraph, RetainedGraphs, SavedAfterBackward
from memguard.records.stats import Stage
from tests.evidence.loop import Loop, line_of, sees_saved_tensors, train_on
from tests.hooks import hooks_on


def make() -> tuple[nn.Module, torch.optim.Optimizer, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    return model, torch.optim.SGD(model.parameters(), lr=0.01), torch.randn(8, 16)


class AskedTwice(nn.Module):
    """Its step asks a part twice, and keeps a value of the graph that no backward runs through."""

    def __init__(self, *, apart: bool) -> None:
        super().__init__()
        self.net, _, _ = make()
        self.apart, self.kept = apart, list[torch.Tensor]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.net(x)
        self.kept.append(self.net(x).sum() if self.apart else out.sum())
        return out


@sees_saved_tensors
@pytest.mark.parametrize("apart", [True, False])
def test_a_graph_beside_the_one_that_was_used_still_saves_all_that_it_did(apart: bool) -> None:
    """A backward ran through the batch, and not through what is kept of it."""
    model = AskedTwice(apart=apart)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Loop(model, kinds=[GraphsProbe]) as loop:
        for _ in loop.batches(12):
            train_on(optimizer, model(torch.zeros(8, 16)).square().mean())
    (fact,) = loop.of(RetainedGraphs)
    assert (fact.place.holder, fact.backward, fact.saves) == ("AskedTwice.kept", True, apart)


@sees_saved_tensors
def test_a_second_list_is_told_as_soon_as_the_first_with_its_own_batches_and_size() -> None:
    """What was told of is set aside: a few kept losses do not hide the whole graphs that another line keeps later."""
    model, optimizer, x = make()
    history, outputs = [], []
    with Loop(model, kinds=[GraphsProbe]) as loop:
        for index in loop.batches(40):
            loss = model(x).square().mean()
            train_on(optimizer, loss)
            if index < 20:
                history.append(loss)  # the first
            else:
                outputs.append(model(x).norm())  # the second
    facts = [fact for fact in loop.of(RetainedGraphs) if fact.place.line == line_of("the second")]
    assert loop.of(RetainedGraphs)[0].place.line == line_of("the first")
    assert facts and facts[0].batch <= 20 + 12
    assert (facts[0].graphs, facts[0].first_batch) == (8, 20)
    # Per batch: what relu saved (8 x 16), the output (8 x 4) and its norm.
    assert facts[0].bytes // facts[0].graphs < 2 * (8 * 16 + 8 * 4 + 1) * 4
    assert not facts[0].backward


def test_a_list_that_another_call_fills_too_is_no_second_cause() -> None:
    """Graphs of another line lead to the same statement: nothing is told anew."""
    model, optimizer, x = make()
    history: list[torch.Tensor] = []

    def note(loss: torch.Tensor) -> None:
        train_on(optimizer, loss)
        history.append(loss)  # of both

    with Loop(model, kinds=[GraphsProbe]) as loop:
        for index in loop.batches(40):
            if index < 16:
                note(model(x).square().mean())
            else:
                note(model(x + 1).mean())
    assert [(fact.first_batch, fact.place.line) for fact in loop.of(RetainedGraphs)] == [(0, line_of("of both"))]


def test_a_list_beside_a_state_that_was_told_is_not_carried() -> None:
    """Whether new graphs reach the old ones is asked anew for those of another line."""
    torch.manual_seed(0)
    cell, x = nn.RNN(4, 4), torch.randn(3, 2, 4)
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    hidden, kept = torch.zeros(1, 2, 4), []
    with Loop(cell, kinds=[GraphsProbe]) as loop:
        for _ in loop.batches(16):
            hidden = cell(x, hidden)[1]  # a state
            optimizer.step()
        for _ in loop.batches(16):
            kept.append(cell(x)[0].norm())  # beside it
            optimizer.step()
    facts = loop.of(RetainedGraphs)
    assert [(fact.place.line, fact.carried) for fact in facts] == [
        (line_of("a state"), True),
        (line_of("beside it"), False),
    ]


@sees_saved_tensors
def test_appended_outputs_are_sized() -> None:
    """Outputs kept without a backward count with all that their graphs saved, parameters left out."""
    model, optimizer, x = make()
    kept = []
    with Loop(model, kinds=[GraphsProbe]) as loop:
        for _ in loop.batches(14):
            kept.append(model(x))  # appended
            train_on(optimizer, model(x).sum())
    (fact,) = loop.of(RetainedGraphs)
    assert (fact.place.holder, fact.place.line) == ("kept", line_of("appended"))
    assert not fact.backward
    # Per batch: the output (8 x 4) and what relu saved (8 x 16); the input is shared by all.
    assert fact.bytes >= fact.graphs * (8 * 4 + 8 * 16) * 4


def test_graphs_that_wait_for_the_garbage_collector_are_not_laid_to_a_comprehension(without_collector: None) -> None:
    """Where nobody holds them they are collected before a comprehension that makes the batches is named for them."""
    model, optimizer, x = make()

    def train_step() -> float:
        output = model(x)

        def halve(depth: int) -> torch.Tensor:
            return halve(depth - 1) / 2 if depth else output.sum()

        loss = halve(2)
        train_on(optimizer, loss)
        return loss.item()

    with Loop(model, kinds=[GraphsProbe]) as loop:
        losses = [train_step() for _ in loop.batches(24)]
    assert len(losses) == 24 and loop.of(RetainedGraphs) == []


class Keeping(torch.autograd.Function):
    """Keeps its output on its context: a circle through C++."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.y = x.exp()
        return ctx.y  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * ctx.y  # type: ignore[no-any-return]


class Keeps(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = Keeping.apply(x / 8)
        return result


def test_circles_behind_each_other_in_one_graph_are_garbage(without_collector: None) -> None:
    """Each run of the collector frees the last of them alone: no comprehension is named for the others."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), Keeps(), nn.Linear(16, 16), Keeps(), nn.Linear(16, 16), Keeps())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)

    def train_step() -> float:
        loss = model(torch.randn(8, 16)).mean()
        train_on(optimizer, loss)
        return loss.item()  # type: ignore[no-any-return]

    with Loop(model, kinds=[GraphsProbe]) as loop:
        losses = [train_step() for _ in loop.batches(24)]
    assert len(losses) == 24 and loop.of(RetainedGraphs) == []


def test_healthy_loops_are_silent() -> None:
    """Last-k windows, accumulation, a roll-out before its step and detached histories hold no old graphs."""
    model, optimizer, x = make()
    with Loop(model, kinds=[GraphsProbe]) as loop:
        recent: deque[torch.Tensor] = deque(maxlen=5)
        history = []
        for _ in loop.batches(20):
            loss = model(x).sum()
            train_on(optimizer, loss)
            recent.append(loss)
            history.append(loss.detach())
        rollout = []
        for index in loop.batches(40):
            rollout.append(model(x).sum())
            if index % 20 == 19:
                train_on(optimizer, torch.stack(rollout).mean())
                rollout.clear()
    assert loop.of(RetainedGraphs) == []


def test_evaluation_outputs_with_graph_are_found_where_nothing_trains() -> None:
    """In eval mode, with no optimizer in sight, kept graphs are told at once."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 4)).eval(), torch.randn(8, 16)
    outputs: list[torch.Tensor] = []
    with Loop(model, kinds=[GraphsProbe]) as loop:
        for _ in loop.batches(12, Stage.VALIDATION):
            outputs += [model(x)]  # evaluated
    (fact,) = loop.of(RetainedGraphs)
    assert (fact.place.holder, fact.place.line) == ("outputs", line_of("evaluated"))
    assert fact.optimizer_steps == 0


@sees_saved_tensors
@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("taken_away", [False, True])
def test_gradients_with_a_graph_on_an_input(taken_away: bool) -> None:
    """Its penalty's graph is told by the backward, not by the loss of another step; taken away it is healthy."""
    model, optimizer, x = make()
    with Loop(model, kinds=[GraphsProbe]) as loop:
        for index in loop.batches(30):
            mixed = (x + torch.randn_like(x)).requires_grad_(True)
            model(mixed).sum().backward(create_graph=True)  # on an input
            optimizer.zero_grad()
            assert mixed.grad is not None
            mixed.grad.square().sum().backward()
            optimizer.step()
            if taken_away:
                mixed.grad = None
            if index % 3 == 2:
                loss = -model(x).mean()
                train_on(optimizer, loss)
    assert loop.of(RetainedGraphs) == []
    facts = loop.of(GradientsWithGraph)
    assert all(fact.place.line == line_of("on an input") and fact.place.holder == "mixed" for fact in facts)
    assert bool(facts) is not taken_away and (taken_away or facts[0].batch <= 20)


@sees_saved_tensors
@pytest.mark.parametrize("first", [True, False])
def test_another_model_that_was_trained_before_in_the_batch_has_freed_its_own_graph_alone(first: bool) -> None:
    """A critic's step, then a backward that retains for nothing; after it, a backward may be one on the same graph."""
    (model, optimizer, x), (critic, of_critic, _) = make(), make()

    def train_critic() -> None:
        critic(x).mean().backward()
        of_critic.step()

    with Loop(model, critic, kinds=[GraphsProbe]) as loop:
        for _ in loop.batches(6):
            if first:
                train_critic()
            loss = model(x).square().mean()
            loss.backward(retain_graph=True)  # for nothing
            if not first:
                train_critic()
            optimizer.step()
    assert {fact.place.line for fact in loop.of(SavedAfterBackward)} == ({line_of("for nothing")} if first else set())


@sees_saved_tensors
@pytest.mark.parametrize("then", ["nothing", "again", "freed"])
def test_a_graph_kept_while_its_batch_goes_on_is_told_once_a_step_shows_that_nobody_wants_it(then: str) -> None:
    """The last of two backwards keeps it too, and the next forward of the batch is built beside it."""
    model, optimizer, x = make()
    x = x.repeat(2048, 1)
    with Loop(model, kinds=[GraphsProbe]) as loop:
        for _ in loop.batches(5):
            out = model(x)
            first, second = out.sum(), out.square().sum()
            first.backward(retain_graph=True)
            second.backward(retain_graph=then != "freed")  # the last of both
            other = model(x + 1).square().sum()
            (other + out.mean() if then == "again" else other).backward()
            optimizer.step()
    facts = loop.of(SavedAfterBackward)
    assert bool(facts) is (then == "nothing")
    assert all(fact.same_batch and not fact.carried and not fact.part for fact in facts)
    assert {fact.place.line for fact in facts} <= {line_of("the last of both")}
    assert [fact.place.holder for fact in facts][1:] == ["second"] * (len(facts) - 1)


@sees_saved_tensors
@pytest.mark.parametrize(("own_batch", "shared"), [(False, False), (True, False), (False, True), (True, True)])
def test_a_graph_kept_for_another_part_is_needed(own_batch: bool, shared: bool) -> None:
    """A discriminator's backward keeps its graph: for the generator's, where the fakes are not detached; else in vain.

    Likewise where both losses have a step within one batch.
    """
    (generator, of_generator, x), (critic, of_critic, _) = make(), make()
    with Loop(generator, head := nn.Sequential(nn.Linear(4, 16), critic), kinds=[GraphsProbe]) as loop:
        for index in loop.batches(12):
            if index % 2 == 0 or own_batch:
                fake = generator(x)
                loss = head(fake if shared else fake.detach()).mean()
                loss.backward(retain_graph=True)  # kept in vain
                of_critic.step()
            if index % 2 or own_batch:
                head(fake).square().mean().backward()
                of_generator.step()
                del loss
    facts = loop.of(SavedAfterBackward)
    assert bool(facts) is not shared
    assert all(fact.place.line == line_of("kept in vain") and not fact.carried for fact in facts)


@sees_saved_tensors
@pytest.mark.parametrize(("rows", "then"), [(8, "freed"), (8192, "freed"), (8, "kept"), (8, "never")])
def test_a_graph_kept_for_another_forward_of_the_same_model_is_needed(rows: int, then: str) -> None:
    """Two losses share one forward; the other, which the second loss does not need, is told where it is much."""
    model, optimizer, x = make()
    with Loop(model, kinds=[GraphsProbe]) as loop:
        for _ in loop.batches(5):
            shared, other = model(x.repeat(rows // 8, 1)), model(-x.repeat(rows // 8, 1))
            loss, second = shared.sum() + other.sum(), shared.square().sum()
            loss.backward(retain_graph=True)  # kept for the second
            if then != "never":
                second.backward(retain_graph=then == "kept")
            optimizer.step()
    facts = loop.of(SavedAfterBackward)
    assert bool(facts) is (rows > 8 or then != "freed")
    assert all(fact.part is (then == "freed") for fact in facts)
    assert {fact.place.line for fact in facts} <= {line_of("kept for the second")}


@sees_saved_tensors
@pytest.mark.parametrize(("width", "wide"), [(256, "head"), (16, "none"), (256, "generator")])
def test_what_is_kept_beside_the_part_that_is_needed_is_weighed(width: int, wide: str) -> None:
    """A discriminator's graph, kept with the generator's, is told where it is much, without what the other needs."""
    (generator, of_generator, x), (critic, of_critic, _) = make(), make()
    x = x.repeat(256, 1)
    grow = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 4))
    generator = nn.Sequential(generator, grow) if wide == "generator" else generator
    head = nn.Sequential(grow if wide == "head" else nn.Identity(), nn.Linear(4, 16), critic)
    with Loop(generator, head, kinds=[GraphsProbe]) as loop:
        for _ in loop.batches(6):
            fake = generator(x)
            loss = head(fake).square().mean() + head(torch.randn_like(fake)).square().mean()
            loss.backward(retain_graph=True)  # kept with it
            of_critic.step()
            head(fake).square().mean().backward()
            of_generator.step()
            del loss
    facts = loop.of(SavedAfterBackward)
    assert bool(facts) is (wide == "head")
    of_one_forward = 2 * len(x) * width * x.element_size()  # what its two Tanh give back
    assert not facts or max(fact.bytes for fact in facts) >= 2 * of_one_forward
    assert [fact.place.holder for fact in facts[1:]] == ["loss"] * len(facts[1:])
    assert all(fact.part and fact.place.line == line_of("kept with it") for fact in facts)


def test_who_keeps_large_graphs_is_named() -> None:
    """A mean over graphs of a thousand nodes each: the marks lie further down than is looked at first."""

    class Unrolled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last, self.mean = nn.Linear(8, 4), nn.Linear(4, 1), torch.zeros(())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = self.first(x)
            for _ in range(1000):
                out = out * 0.999
            self.mean = 0.9 * self.mean + 0.1 * out.square().mean()  # far from its marks
            return self.last(out)

    model = Unrolled()
    optimizer, x = torch.optim.SGD(model.parameters(), lr=0.01), torch.randn(8, 8)
    with Loop(model, kinds=[GraphsProbe]) as loop:
        for _ in loop.batches(14):
            model(x).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    (fact,) = loop.of(RetainedGraphs)
    assert (fact.place.holder, fact.place.line) == ("Unrolled.mean", line_of("far from its marks"))


def test_nothing_is_kept_alive_and_copies_have_no_hook() -> None:
    """The ledger holds no graph, and a deep copy or pickle of the model has no hook."""
    model, optimizer, x = make()
    with Loop(model, kinds=[GraphsProbe]) as loop:
        for _ in loop.batches(5):
            train_on(optimizer, model(x).sum())
            assert not [mark for mark in loop.watch.ledger.live.values() if mark.batch < loop.batch]
        with_hook: list[nn.Module] = []
        model[1].register_forward_pre_hook(lambda *args: with_hook.append(copy.deepcopy(model[0])))
        model[1].register_forward_pre_hook(lambda *args: with_hook.append(pickle.loads(pickle.dumps(model[0]))))
        model(x)
        for twin in with_hook:
            assert hooks_on(twin) == [] and type(vars(twin)["_forward_hooks"]) is OrderedDict
            twin(x)
    assert len(with_hook) == 2
    assert hooks_on(model[0]) == []


def test_the_stem_has_a_hook_only_while_a_forward_is_heard() -> None:
    """Outside of forwards, and in batches that nobody looks at, torch calls the stem as if nobody watched."""
    model, optimizer, x = make()
    inside: list[int] = []
    model[1].register_forward_pre_hook(lambda *args: inside.append(len(hooks_on(model[0]))))
    with Loop(model, kinds=[GraphsProbe]) as loop:
        for _ in loop.batches(66):
            train_on(optimizer, model(x).sum())
            assert not hooks_on(model[0])
        assert set(inside[:64]) == {1} and inside[65:] == [0], "of those after the first one in sixteen is looked at"
        model(x)
        assert inside[-1] == 1, "between two batches every forward is heard"


def test_a_stem_that_was_replaced_is_found_anew() -> None:
    """A new first layer gets its hook in the next forward that is heard."""
    model, optimizer, x = make()
    inside: list[int] = []
    model[1].register_forward_pre_hook(lambda *args: inside.append(len(hooks_on(model[0]))))
    with Loop(model, kinds=[GraphsProbe]) as loop:
        for index in loop.batches(4):
            if index == 2:
                model[0] = nn.Linear(*reversed(model[0].weight.shape))
            train_on(optimizer, model(x).sum())
        assert inside == [1] * 4
    assert hooks_on(model[0]) == []


def test_torch_func_and_compile_are_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Under functional transforms and in compiled models nothing fails and nothing breaks the graph."""
    model, optimizer, x = make()
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True):
        for _ in range(4):
            train_on(optimizer, model(x).sum())
            params = dict(model.named_parameters())
            torch.func.grad(lambda p: torch.func.functional_call(model, p, (x,)).sum())(params)
            torch.vmap(model)(x.unsqueeze(0))
        explained = torch._dynamo.explain(model)(x)
    assert explained.graph_break_count <= 0  # -1 in torch 2.4
    assert "memguard" not in caplog.text


def test_a_graph_that_outlived_many_batches_brings_the_next_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a fast loop one batch in many is looked at: eight of them would be a long time."""
    numbers = itertools.count()
    monkeypatch.setattr(SamplingBudget, "looks", lambda *_, surely, **__: surely or next(numbers) % 128 == 0)
    model, kept = nn.Linear(4, 4), list[torch.Tensor]()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Loop(model, kinds=[GraphsProbe]) as loop:
        for _ in loop.batches(200):
            loss = model(torch.randn(2, 4)).square().mean()
            train_on(optimizer, loss)
            kept.append(loss)
    (fact,) = loop.of(RetainedGraphs)
    assert fact.batch < 150 and fact.place.holder == "kept"


@pytest.mark.parametrize("rounds", [1, 3])
def test_one_steps_roll_out_in_a_variable_is_no_leak_and_those_of_several_steps_are(rounds: int) -> None:
    """The last loss of a plan keeps all its forwards until the next plan: they are one step's."""
    model, optimizer, x = make()
    plans, cost = list[torch.Tensor](), torch.zeros(())
    with Loop(model, kinds=[GraphsProbe]) as loop:
        batches = loop.batches(rounds * 20)
        for number, _ in enumerate(batches):
            if number % 20 < 10:
                cost = model(x).square().mean() + (cost if number % 20 else 0.0)
                if number % 20 == 9:
                    train_on(optimizer, cost)
                    plans.append(cost)
            else:
                train_on(optimizer, model(x).square().mean())
    assert bool(loop.of(RetainedGraphs)) == (rounds > 1)
