"""A model inside a wrapper that is watched: its calls past the wrapper are told, those by the wrapper are not."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import memguard
from memguard.integrations.guard import Guard
from memguard.integrations.loop.wrapped_models import InnerHooks, inner_models
from memguard.integrations.script import ScriptGuard
from memguard.options import Options
from memguard.recording.reader import Recording, find_recordings
from memguard.records.stats import Stage
from tests.hooks import hooks_everywhere, hooks_inside


class Net(nn.Module):
    """The model itself; calls itself again as often as it is told."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, width), nn.Linear(width, 8)

    def forward(self, x: torch.Tensor, again: int = 0) -> torch.Tensor:
        if x.shape[0] == 13:
            raise ValueError("thirteen")
        x = self.second(self.first(x).relu())
        return self(x, again - 1) if again else x


class Wrapper(nn.Module):
    """Hands everything on."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any) -> Any:
        return self.module(*args)


class Recomputing(Wrapper):
    """Likewise; backward computes it again."""

    def forward(self, *args: Any) -> Any:
        return checkpoint(self.module, *args, use_reentrant=False)


class Heard:
    """Whoever hears of the forwards of an inner model."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def forward_start(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.told.append("start")

    def forward_end(self, model: nn.Module, args: tuple[Any, ...], output: object) -> None:
        self.told.append("end" if output is not None else "failed")

    def hook_failed(self, error: Exception) -> None:
        raise AssertionError from error


def heard(inner: nn.Module) -> Heard:
    told = Heard()
    InnerHooks(inner, told)
    return told


def train(model: nn.Module, optimizer: torch.optim.Optimizer, count: int = 10) -> None:
    model.train()
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()


def evaluate(model: nn.Module, count: int = 5) -> torch.Tensor:
    model.eval()
    for _ in range(count):
        out: torch.Tensor = model(torch.ones(4, 8))
    return out


def stages(guard: Guard) -> dict[Stage, int]:
    return dict(Counter(record.stage for record in guard.records))


def hooks_on(model: nn.Module) -> int:
    return len(hooks_inside(model))


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    address = f"file://{tmp_path / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_evaluation_past_the_wrapper_is_evaluation(tmp_path: Path) -> None:
    """Its batches are recorded as such, its graphs told, and it runs without them; no weight counts twice."""
    inner = Net()
    model = Wrapper(inner)
    optimizer = torch.optim.AdamW(model.parameters())
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True, device="virtual:64MiB") as guard:
        for _ in range(2):
            train(model, optimizer)
            out = evaluate(inner)
    assert stages(guard) == {Stage.TRAIN: 20, Stage.VALIDATION: 10}
    assert out.grad_fn is None
    assert [finding.code for finding in guard.findings] == ["MG201"]
    assert hooks_on(model) == 0
    owners = Recording.open(find_recordings(tmp_path)[0]).of_kind("owners")
    assert owners[-1]["parameters_bytes"] == sum(parameter.numel() * 4 for parameter in model.parameters())


def test_graphs_of_such_an_evaluation_that_are_kept_are_told(tmp_path: Path) -> None:
    """Where the guard only warns, too."""
    inner = Net()
    model = Wrapper(inner)
    optimizer, kept = torch.optim.AdamW(model.parameters()), []
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True, validation="warn") as guard:
        for _ in range(5):
            train(model, optimizer, 4)
            kept.append(evaluate(inner))
    assert "MG201" in [finding.code for finding in guard.findings]
    assert kept[0].grad_fn is not None


def test_one_rank_evaluates_the_module_of_its_ddp(one_rank: None, tmp_path: Path) -> None:
    """As accelerate's unwrap gives it."""
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.AdamW(model.parameters())
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True) as guard:
        train(model, optimizer)
        out = evaluate(model.module)
    assert stages(guard) == {Stage.TRAIN: 10, Stage.VALIDATION: 5}
    assert out.grad_fn is None


@pytest.mark.parametrize("kind", ["own", "sequential"])
def test_a_compiled_model_gets_no_further_graph(kind: str, tmp_path: Path) -> None:
    """Training with evaluation past the graph compiles as often as without memguard, also when the run is over."""
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    inner = Net() if kind == "own" else nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    compiled = torch.compile(inner, backend="eager")
    assert isinstance(compiled, nn.Module)
    optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)
    counters.clear()
    with memguard.watch(compiled, optimizer, logdir=tmp_path, quiet=True) as guard:
        for _ in range(2):
            train(compiled, optimizer)
            evaluate(inner)
            inner.train()
    train(compiled, optimizer)
    assert counters["stats"]["unique_graphs"] == 1
    assert sum(counters["graph_break"].values()) == 0
    assert stages(guard)[Stage.TRAIN] == 20
    assert stages(guard).get(Stage.VALIDATION, 0) == (10 if kind == "own" else 0)
    torch._dynamo.reset()


def test_backward_that_computes_the_model_again_begins_no_batch(tmp_path: Path) -> None:
    """Nobody called it then, as far as the stack knows."""
    model = Recomputing(Net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told = heard(model.module)
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True) as guard:
        train(model, optimizer)
    assert stages(guard) == {Stage.TRAIN: 10}
    assert told.told == []


def test_a_forward_of_the_wrapper_tells_nothing() -> None:
    """Nor does one of any other module that asks."""
    model = Wrapper(Net())
    model.register_forward_hook(lambda *args: None)
    told = heard(model.module)
    model(torch.ones(2, 8), 2)
    assert told.told == []


def test_a_call_past_the_wrapper_is_told_once_however_it_ends() -> None:
    """A model that calls itself is one forward; one that fails ends too; afterwards the second hook is gone."""
    model = Wrapper(Net())
    told = heard(model.module)
    model.module(torch.ones(2, 8), 2)
    with pytest.raises(ValueError, match="thirteen"):
        model.module(torch.ones(13, 8))
    model.module(torch.ones(2, 8))
    assert told.told == ["start", "end", "start", "failed", "start", "end"]
    assert len(hooks_inside(model.module)) == 1  # the first one


def test_copies_and_replicas_tell_nothing() -> None:
    """A copy has a hook of its own, a replica of DataParallel's the same one."""
    model = Wrapper(Net())
    told = heard(model.module)
    copy.deepcopy(model).module(torch.ones(2, 8))
    copy.copy(model.module)(torch.ones(2, 8))  # what a replica shares
    assert told.told == []


def test_a_wrapper_that_is_gone_leaves_no_hook(tmp_path: Path) -> None:
    """The model that it wrapped lives on."""
    inner = Net()
    with memguard.watch([Wrapper(inner)], logdir=tmp_path, quiet=True):
        assert hooks_on(inner) == 1
    assert hooks_on(inner) == 0


def test_a_wrapper_and_its_model_may_both_be_given(tmp_path: Path) -> None:
    """In either order; one dropped leaves the other."""
    inner = Net()
    model = Wrapper(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for roots in ([model, inner], [inner, model]):
        with memguard.watch(roots, optimizer, logdir=tmp_path, quiet=True) as guard:
            assert guard.models == roots[::-1]
            train(model, optimizer)
            evaluate(inner)
            assert guard.drop(inner)
        assert stages(guard) == {Stage.TRAIN: 10, Stage.VALIDATION: 5}
        assert hooks_on(model) == 0


def test_a_script_run_from_outside_tells_each_call_once(tmp_path: Path) -> None:
    """Whoever looks for root models does not take the inner one for one more."""
    inner = Net()
    model = Wrapper(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    script = ScriptGuard(Options.make(logdir=tmp_path, validation="warn"))
    script.install()
    train(model, optimizer)
    evaluate(inner).sum()
    summary = script.remove("finished")
    assert summary is not None
    assert {stage: row.batches for stage, row in summary.stages.items()} == {Stage.TRAIN: 10, Stage.VALIDATION: 5}
    assert hooks_on(model) == 0


def test_nothing_is_looked_for_while_the_program_has_a_guard_of_its_own(tmp_path: Path) -> None:
    """Hooks on all modules would cost each call of each module; with the guard they come back."""
    script = ScriptGuard(Options.make(logdir=tmp_path / "script", validation="warn"))
    script.install()
    assert len(hooks_everywhere()) == 2
    net = Net()
    guard = Guard([net], [], Options.make(logdir=tmp_path / "own"), quiet=True)
    with guard:
        guard.session.others.remove()
        train(net, torch.optim.SGD(net.parameters(), lr=0.1))
        assert len(hooks_everywhere()) == 0
    assert len(hooks_everywhere()) == 2
    script.remove("finished")
    assert len(hooks_everywhere()) == 0


def named(name: str, module: nn.Module) -> nn.Module:
    holder = nn.Module()
    holder.add_module("no_weights", nn.ReLU())
    holder.add_module(name, module)
    return holder


def test_what_is_a_wrapper() -> None:
    """All of its parameters are those of one module, called as wrappers call it or of a class of the user's."""
    net, layers = Net(), nn.Sequential(nn.Linear(2, 2))
    assert list(inner_models(DataParallel(net))) == [net]
    assert list(inner_models(named("model", net))) == [net]
    assert list(inner_models(Wrapper(layers))) == [layers]
    assert list(inner_models(named("layers", layers))) == []
    assert list(inner_models(net)) == []
    with_weight = named("module", net)
    with_weight.register_parameter("scale", nn.Parameter(torch.ones(1)))
    assert list(inner_models(with_weight)) == []
    outer = Wrapper(inside := Wrapper(net))
    assert list(inner_models(outer)) == [inside, net]


def test_inside_a_compiled_graph_nothing_is_a_wrapper() -> None:
    """There a hook would be a part of the graph."""
    net = Net()
    compiled = torch.compile(Wrapper(net), backend="eager")
    assert isinstance(compiled, nn.Module)
    assert list(inner_models(compiled)) == [compiled._orig_mod]
    around = DataParallel(torch.compile(net, backend="eager"))
    assert list(inner_models(around)) == [around.module, net]
    in_place = Wrapper(Net())
    in_place.compile(backend="eager")
    assert list(inner_models(in_place)) == []
    in_place = Wrapper(net)
    net.compile(backend="eager")
    assert list(inner_models(in_place)) == []
