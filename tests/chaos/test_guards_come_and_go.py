"""Guards that begin, end and are interrupted where nobody would expect it: the model is as it was."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import memguard
from tests.chaos.left_behind import in_process, on_objects
from tests.chaos.training import assert_same, batches, net, seed, step, train, unguarded, watched


def test_unwrap_inside_a_forward_hook(tmp_path: Path) -> None:
    """The guard goes while a forward that it guards is open, in any hook: gradients are there again."""
    for place in ("pre", "post", "child"):
        model = net().eval()
        memguard.wrap(model, logdir=tmp_path, quiet=True, device="cpu")
        done: list[bool] = []

        def unwrap(*args: object, model: nn.Module = model, done: list[bool] = done) -> None:
            if not done:
                done.append(True)
                memguard.unwrap(model)

        target = model[0] if place == "child" else model
        if place == "pre":
            target.register_forward_pre_hook(unwrap)
        else:
            target.register_forward_hook(unwrap)
        model(torch.ones(1, 8))
        assert done and torch.is_grad_enabled()
        assert model(torch.ones(1, 8)).requires_grad


def test_wrapping_twice_and_a_watch_inside(tmp_path: Path) -> None:
    """wrap, wrap again, and a watch of the same model in the middle: all of them go as they came."""
    model = net()
    twin = copy.deepcopy(model)
    memguard.wrap(model, logdir=tmp_path, quiet=True, device="cpu")
    memguard.wrap(model)
    assert_same(train(watched(tmp_path, device="cpu"), model=model), train(unguarded, model=twin))
    memguard.unwrap(model)
    assert on_objects(model) == []


@pytest.mark.parametrize("device", ["cpu", "virtual:1GiB"])
@pytest.mark.parametrize("first", [0, 1])
def test_two_guards_close_in_either_order(first: int, device: str, tmp_path: Path) -> None:
    """Each takes away what is its own; the other one goes on recording until its end."""
    seed()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guards = [memguard.watch(model, optimizer, logdir=tmp_path / n, quiet=True, device=device) for n in ("a", "b")]
    numbers = []
    for guard in guards:
        guard.__enter__()
    numbers += [step(model, optimizer, x, y) for x, y in batches(3)]
    guards[first].close()
    numbers += [step(model, optimizer, x, y) for x, y in batches(3)]
    guards[1 - first].close()
    assert in_process() == on_objects(model, optimizer) == []
    numbers += [step(model, optimizer, x, y) for x, y in batches(3)]
    trained = [sum(record.stage is memguard.Stage.TRAIN for record in guard.records) for guard in guards]
    assert [trained[first], trained[1 - first]] == [3, 6]
    seed()
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert_same(numbers, [step(model, optimizer, x, y) for _ in range(3) for x, y in batches(3)])


def test_what_is_left_behind_would_be_seen(tmp_path: Path) -> None:
    """The look itself: an open guard stands in the process, on the model and on the optimizer's class."""
    model = net()
    with memguard.watch(model, logdir=tmp_path, quiet=True, device="virtual:1GiB"):
        model(torch.ones(1, 8)).sum().backward()
        assert {"gc.callbacks", "sys.excepthook", "UntypedStorage.resize_"} <= set(in_process())
        assert "Sequential._forward_hooks" in on_objects(model)


def test_a_model_near_the_recursion_limit_trains(tmp_path: Path) -> None:
    """Nested as deeply as goes without memguard, save a few levels: our hooks cost a few frames, not one a level."""
    nested: list[nn.Module] = [nn.Linear(8, 4)]
    for _ in range(990):
        nested.append(nn.Sequential(nested[-1]))

    def goes(model: nn.Module) -> bool:
        try:
            model(torch.ones(1, 8))
        except RecursionError:
            return False
        return True

    deepest = next(levels for levels in range(0, 990, 10) if not goes(nested[levels])) - 10
    model = nested[deepest - 30]
    del nested
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True, device="cpu") as guard:
        numbers = [step(model, optimizer, x, y) for x, y in batches(3)]
    assert len(guard.records) == len(numbers) == 3


def test_disabled_means_untouched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MEMGUARD_DISABLE=1: the same numbers, and not a file."""
    monkeypatch.setenv("MEMGUARD_DISABLE", "1")
    assert_same(train(watched(tmp_path)), train(unguarded))
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_forward_leaves_recording_and_guard_working(tmp_path: Path) -> None:
    """KeyboardInterrupt in a training forward, as in a notebook: later batches are recorded as before."""
    model = net()
    interrupt: list[bool] = []

    def stop(*args: object) -> None:
        if interrupt:
            interrupt.pop()
            raise KeyboardInterrupt

    model[1].register_forward_hook(stop)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True, device="cpu") as guard:
        for x, y in batches(3):
            step(model, optimizer, x, y)
        interrupt.append(True)
        with pytest.raises(KeyboardInterrupt):
            model(x)
        for x, y in batches(3):
            step(model, optimizer, x, y)
        assert len(guard.records) >= 6
        model.eval()
        assert not model(x).requires_grad
        interrupt.append(True)
        with pytest.raises(KeyboardInterrupt):
            model(x)
        with torch.no_grad():
            assert not model(x).requires_grad
        model.train()
        assert model(x).requires_grad
