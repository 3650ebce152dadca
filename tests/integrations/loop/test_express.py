"""Batches that go the short way: told as on the long one, whatever happens in between."""

from __future__ import annotations

import contextlib
import gc
import inspect
import random
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, final

import pytest
import torch
from torch import nn
from torch.optim import optimizer as optimizers

import memguard
from memguard.evidence import PROBES
from memguard.evidence.dispatcher import ProbeDispatcher
from memguard.evidence.interface import Probe
from memguard.integrations.guard import Guard
from memguard.integrations.loop.fast_path import FastPath
from memguard.recorder import Recorder
from memguard.records.batch_ends import RecordMaker
from memguard.records.fast_path_state import FastPathState
from tests.hooks import hooks_on

ORDINARY = 40


class Model(nn.Module):
    """Does in its forward what the test asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.act: Callable[[], object] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        act, self.act = self.act, None
        if act is not None:
            act()
        return self.layer(x)


class Program:
    """A loop of ordinary batches with something else between and in them."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(0)
        self.random = random.Random(seed)
        self.model, self.other = Model(), Model()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.second = torch.optim.SGD(self.other.parameters(), lr=0.1)
        self.guard: Guard | None = None
        self.width = 4

    def batch(self, rows: int = 2) -> None:
        """One forward, one backward, one step."""
        self.optimizer.zero_grad()
        self.model(torch.ones(rows, 4)).sum().backward()
        self.optimizer.step()

    def evaluation(self) -> None:
        self.model.eval()
        with torch.no_grad() if self.random.random() < 0.5 else contextlib.nullcontext():
            for _ in range(self.random.randint(1, 3)):
                self.model(torch.ones(3, 4))
        self.model.train()

    def adversaries(self) -> None:
        """A step of each of two models, in which both are called."""
        fake = self.other(torch.ones(2, 4))
        self.optimizer.zero_grad()
        (self.model(torch.ones(2, 4)) + self.model(fake.detach())).sum().backward()
        self.optimizer.step()
        self.second.zero_grad()
        self.model(fake).sum().backward()
        self.second.step()

    def moves(self) -> None:
        """Some moves without gradients, then an update from them."""
        with torch.no_grad():
            for _ in range(3):
                self.model(torch.ones(1, 4))
        self.batch()

    def by_hand(self) -> None:
        """Nothing steps."""
        self.model(torch.ones(2, 4)).sum().backward()

    def forward_alone(self) -> None:
        self.model(torch.ones(2, 4))

    def accumulated(self) -> None:
        for _ in range(2):
            self.model(torch.ones(2, 4)).sum().backward()
        self.optimizer.step()

    def closure(self) -> None:
        def closure() -> float:
            self.optimizer.zero_grad()
            loss = self.model(torch.ones(2, 4)).sum()
            loss.backward()
            return loss.item()

        self.optimizer.step(closure)

    def closure_after_forward(self) -> None:
        self.model(torch.ones(2, 4)).sum().backward()
        self.closure()

    def two_steps(self) -> None:
        self.batch()
        self.optimizer.step()
        self.second.step()

    def other_steps(self) -> None:
        self.model(torch.ones(2, 4)).sum().backward()
        self.second.step()

    def error(self) -> None:
        self.model.act = _fails
        with contextlib.suppress(ValueError):
            self.model(torch.ones(2, 4))

    def interrupted(self) -> None:
        self.model.act = _interrupts
        with contextlib.suppress(KeyboardInterrupt):
            self.model(torch.ones(2, 4))

    def step_fails(self) -> None:
        with contextlib.suppress(ValueError):
            self.optimizer.step(_fails)

    def step_fails_after_forward(self) -> None:
        self.model(torch.ones(2, 4)).sum().backward()
        self.step_fails()

    def nested(self) -> None:
        self.model.act = lambda: self.other(torch.ones(1, 4))
        self.batch()

    def recursive(self) -> None:
        self.model.act = lambda: self.model(torch.ones(1, 4))
        self.batch()

    def teacher(self) -> None:
        self.other.eval()
        with torch.no_grad():
            self.other(torch.ones(2, 4))
        self.batch()
        self.other.train()

    def other_batch(self) -> None:
        self.second.zero_grad()
        self.other(torch.ones(2, 4)).sum().backward()
        self.second.step()

    def transform(self) -> None:
        torch.func.vmap(self.model)(torch.ones(2, 3, 4))

    def in_handler(self) -> None:
        try:
            raise ValueError("the batch before")
        except ValueError:
            self.batch()

    def new_optimizer(self) -> None:
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def new_model(self) -> None:
        assert self.guard is not None
        self.guard.add(nn.Linear(4, 4))

    def said(self) -> None:
        assert self.guard is not None
        for rows in self.guard.batches([2, 3]):
            self.batch(rows)

    def half_said(self) -> None:
        self.model(torch.ones(2, 4))
        self.said()

    def asks(self) -> None:
        assert self.guard is not None
        assert self.guard.records

    def suspicion(self) -> None:
        assert self.guard is not None
        self.guard.session.watch.look_closely(5)

    def wider(self) -> None:
        self.batch(rows=5)

    def evaluated_before_step(self) -> None:
        self.evaluation()
        loss = self.model(torch.ones(2, 4)).sum()
        self.model.eval()
        self.model(torch.ones(2, 4))
        self.model.train()
        loss.backward()
        self.optimizer.step()

    def skipped_step(self) -> None:
        self.evaluation()
        self.model(torch.ones(2, 4)).sum().backward()
        self.evaluation()

    def bare_steps(self) -> None:
        for _ in range(40):
            self.optimizer.step()

    def step_in_step(self) -> None:
        program = self

        class Outer(torch.optim.SGD):
            def step(self, closure: Any = None) -> Any:
                program.optimizer.step()
                loss = closure()
                program.optimizer.step()
                return loss

        def closure() -> float:
            loss = self.model(torch.ones(2, 4)).sum()
            loss.backward()
            return loss.item()

        Outer(self.other.parameters(), lr=0.1).step(closure)

    def play(self, guard: Guard) -> None:
        """Repeats some turn for a while, then does something else.

        No turn in which a batch ends with its backward alone: on the short way nobody would know of one left out.
        """
        self.guard = guard
        others = [self.evaluation, self.forward_alone, self.accumulated, self.closure, self.closure_after_forward]
        others += [self.two_steps, self.other_steps, self.error, self.interrupted, self.nested, self.recursive]
        others += [self.teacher, self.other_batch, self.transform, self.in_handler, self.new_optimizer, self.new_model]
        others += [
            self.step_fails,
            self.step_fails_after_forward,
            self.said,
            self.half_said,
            self.asks,
            self.suspicion,
            self.wider,
            self.evaluated_before_step,
            self.skipped_step,
            self.bare_steps,
            self.step_in_step,
        ]
        turns = [self.adversaries, self.moves, self.closure, self.teacher]
        for i in range(18):
            turn = self.batch if i % 2 else self.random.choice(turns)
            for _ in range(self.random.randint(1, ORDINARY)):
                turn()
            self.random.choice(others)()


def _fails() -> float:
    raise ValueError("the user's own")


def _interrupts() -> None:
    raise KeyboardInterrupt


@final
class Spy(Probe):
    """Writes down what it is told, and what is known then."""

    heard: ClassVar[list[tuple[object, ...]]] = []

    def note(self, event: str, *about: object) -> None:
        watch = self.watch
        counts = watch.batch, watch.batches, watch.optimizer_steps
        self.heard.append((event, *about, watch.stage, *counts, len(watch.ledger.live)))

    def on_batch_start(self) -> None:
        self.note("batch start")

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Any) -> None:
        self.note("forward start", module.training, args[0].shape)

    def on_stem_end(self, module: nn.Module, output: object) -> None:
        self.note("stem end")

    def on_forward_end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        if output is not None or self.heard[-1][0] != "batch end":  # one that fails unseen is told, on the short way
            self.note("forward end", module.training, args[0].shape, output is None)

    def on_optimizer_step_end(self, optimizer: torch.optim.Optimizer) -> None:
        self.note("step end")

    def on_batch_end(self) -> None:
        assert self.watch.record is not None
        self.note("batch end", self.watch.record.batch)


def told(seed: int, folder: Path, turn: str | None = None) -> tuple[list[Any], dict[str, Any]]:
    """What a guarded program is told to be, without times and the process's own memory."""
    Spy.heard.clear()
    program = Program(seed)
    models, optimizers = [program.model, program.other], [program.optimizer, program.second]
    validation = "warn" if seed % 4 == 3 else "guard"
    with memguard.watch(models, optimizers, logdir=folder, quiet=True, device="cpu", validation=validation) as guard:
        if turn is None:
            program.play(guard)
        for _ in range(2 * ORDINARY if turn is not None else 0):
            getattr(program, turn or "")()
        guard.loop._leave_express()  # what was taken is told
        session = guard.session
        probes, watch, loop = session.probes, session.watch, guard.loop._inference
        state = {
            "looks": probes.pace._batches,
            "batches": (watch.batch, watch.batches, watch.optimizer_steps, session.recorder.optimizer_steps),
            "loop": (loop._open or guard.loop._express.row.is_open, loop._stage, loop._stepping),
            "probes": Spy.heard[:],
        }
    records = [(r.batch, r.stage, r.epoch, r.index, r.optimizer_steps, r.shapes) for r in guard.records]
    return [records, session.recorder.shape_texts, sorted(guard.findings, key=lambda f: f.code)], state


@pytest.fixture(params=[6, 1 << 60], ids=["few looks", "all looked at"])
def soon(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A loop is taken to repeat itself after few batches; whether only few of them are looked at."""
    monkeypatch.setattr("memguard.integrations.loop.inference.PLAIN_BATCHES", 4)
    monkeypatch.setattr("memguard.integrations.loop.cycles.SETTLED_BATCHES", 4)
    monkeypatch.setattr("memguard.integrations.loop.fast_path.LEAST_BATCHES", 2)
    monkeypatch.setattr("memguard.evidence.sampling_budget.FIRST_BATCHES", request.param)
    monkeypatch.setattr("memguard.evidence.sampling_budget.SamplingBudget.spend", lambda self, seconds: None)
    return bool(request.param == 6)


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(n, marks=pytest.mark.slow) for n in range(6, 16))])
def test_short_way_tells_what_the_long_way_tells(
    seed: int, soon: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records, steps and looks are the same with the short way and without it, whatever comes between the batches.

    So is what probes are told where they look.
    """
    short, long, taken = both_ways(monkeypatch, tmp_path, seed)
    assert short == long
    assert taken > ORDINARY or not soon  # of looked-at ones only a simple loop's, while none of them hears of losses


TURNS = "batch", "adversaries", "moves", "by_hand", "accumulated", "closure", "teacher", "two_steps", "other_batch"


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("soon", [6], indirect=True, ids=["few looks"])
@pytest.mark.parametrize("turn", TURNS)
def test_every_loop_that_repeats_itself_goes_the_short_way(
    turn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its turns consist of; and what is told of it stays the same."""
    monkeypatch.setattr("memguard.integrations.loop.plain_loop.names_evaluation", lambda: False)  # a test's name does
    short, long, taken = both_ways(monkeypatch, tmp_path, 0, turn)
    assert short == long
    assert taken > ORDINARY / 2


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("soon", [1 << 60], indirect=True, ids=["all looked at"])
def test_a_simple_loop_goes_the_short_way_where_all_of_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probes are told of its batches there, once none of them hears of losses any more."""
    short, long, taken = both_ways(monkeypatch, tmp_path, 0, "batch")
    assert short == long
    assert taken > 8


def both_ways(
    monkeypatch: pytest.MonkeyPatch, folder: Path, seed: int, turn: str | None = None
) -> tuple[object, object, int]:
    """What is told with the short way and without it, and how many batches went the short way."""
    taken, end = 0, FastPathState.end

    def counted(self: FastPathState) -> bool:
        nonlocal taken
        taken += 1
        return end(self)

    monkeypatch.setattr("memguard.integrations.session.PROBES", (*PROBES, Spy))
    monkeypatch.setattr(FastPathState, "end", counted)
    short = told(seed, folder / "short", turn)
    monkeypatch.setattr(FastPath, "_enter", lambda self, event: None)
    return short, told(seed, folder / "long", turn), taken


@pytest.mark.usefixtures("soon")
def test_what_asks_in_the_middle_of_a_short_batch_knows_who_was_called(tmp_path: Path) -> None:
    """The out-of-memory report asks which models are recent: the short way tells of the call then alone."""
    program = Program(0)
    with memguard.watch(program.model, program.optimizer, logdir=tmp_path, quiet=True, device="cpu") as guard:
        for _ in range(ORDINARY):
            program.batch()
        session, asked = guard.session, []

        def asks() -> None:
            assert session.express is not None and session.express.is_inside
            session.disturb()
            asked.append((session.oom._called[id(program.model)], session.recorder.batch, session.oom._forwards.now))

        while not asked:
            program.model.act = asks if session.express is not None and session.express.row.left > 0 else None
            program.batch()
        ((called, batch, forwards),) = asked
    assert (called, forwards) == (batch, 1)


FAILING = [
    (kind, name)
    for kind in (FastPath, FastPathState, RecordMaker, Recorder, ProbeDispatcher)
    for name, value in vars(kind).items()
    if inspect.isfunction(value) and name not in ("__init__", "failed", "part", "close", "_conclude", "_remove_backend")
]


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(("kind", "name"), FAILING, ids=[f"{kind.__name__}.{name}" for kind, name in FAILING])
def test_training_goes_on_whatever_fails_in_the_midst_of_a_row(
    kind: type, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a batch on in which the short way is gone, each method fails: the weights are those without a guard."""
    ordinary = ORDINARY

    def weights(*, guarded: bool) -> list[torch.Tensor]:
        nonlocal ordinary
        program = Program(0)
        watched: Any = contextlib.nullcontext()
        if guarded:
            watched = memguard.watch(program.model, program.optimizer, logdir=tmp_path, quiet=True, device="cpu")
        with watched, monkeypatch.context() as patch:
            for _ in range(ordinary):
                program.batch()
            if guarded:
                while watched.session.recorder.row.left <= 0 and ordinary < 8 * ORDINARY:  # a batch is being sampled
                    program.batch()
                    ordinary += 1
                assert watched.session.recorder.row.left > 0
                patch.setattr(kind, name, _breaks)
            for act in (program.batch, program.wider, program.evaluation, program.batch, program.closure):
                for _ in range(8):
                    act()
        return [parameter.detach().clone() for parameter in program.model.parameters()]

    torch.testing.assert_close(weights(guarded=True), weights(guarded=False), rtol=0, atol=0)


def _breaks(*args: object, **kwargs: object) -> None:
    raise ZeroDivisionError("planted")


def test_a_stopped_hook_holds_nothing_of_the_run(tmp_path: Path) -> None:
    """It may stay in a module for good: of the session nothing stays with it."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guard = memguard.watch(model, optimizer, logdir=tmp_path, quiet=True, device="cpu")
    left: list[Any] = hooks_on(model)
    left += [*optimizers._global_optimizer_pre_hooks.values(), *optimizers._global_optimizer_post_hooks.values()]
    guard.close()
    for hook in left:
        hook.stop()
    session = weakref.ref(guard.session)
    del guard
    gc.collect()
    assert session() is None
    assert all(hook(model, (), {}) is None for hook in left)
