"""Further copies of a model's weights."""

from __future__ import annotations

import collections
import copy
import functools
from collections import deque
from pathlib import Path

import pytest
import torch
from torch import nn

from memguard.evidence.kept.copies import find_copies, is_loaded, is_mapped_to_host
from memguard.evidence.kept.scans import ScansProbe
from memguard.evidence.naming.holders import HolderSearch
from memguard.records.facts import CheckpointKept, KeptOutputs, ModelCopies
from memguard.records.stats import Stage
from tests.evidence.loop import Loop, train_on


def make() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def weights(model: nn.Module) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


class Windows:
    """The weights of the last few steps, in three ways; and all of them."""

    def __init__(self) -> None:
        self.recent: dict[int, dict[str, torch.Tensor]] = {}
        self.ring: list[object] = [None] * 3
        self.newest = collections.deque[dict[str, object]](maxlen=int("3"))
        self.all: list[dict[str, torch.Tensor]] = []

    def put(self, step: int, model: nn.Module) -> None:
        self.recent[step] = {k: v.detach().clone() for k, v in model.state_dict().items()}
        while len(self.recent) > 3:
            self.recent.pop(min(self.recent))
        self.ring[step % len(self.ring)] = {k: v.detach().clone() for k, v in model.state_dict().items()}
        self.newest.append({"step": step, "weights": copy.deepcopy(model.state_dict())})
        self.all.append(copy.deepcopy(model.state_dict()))


class Keeper:
    """The three best of all that it keeps."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, dict[str, torch.Tensor]]] = []

    def offer(self, score: int, model: nn.Module) -> list[tuple[int, dict[str, torch.Tensor]]]:
        self.kept.append((score, copy.deepcopy(model.state_dict())))
        self.kept.sort(key=lambda item: item[0])
        return self.kept[:3]


def test_copies_are_named_by_the_list_that_gets_them_not_by_a_part_of_it() -> None:
    """``best`` is a slice, met first, and has the same elements as the list that grows."""
    model, keeper = make(), Keeper()
    best = [keeper.offer(score, model) for score in range(5)][-1]
    found = find_copies(HolderSearch(models=[model]), [model])
    assert len(best) == 3
    assert [one.place.holder for one in found] == ["Keeper.kept"] * 5


def test_copies_in_a_container_that_has_a_limit_say_so() -> None:
    """One that gives the oldest back, places that are taken in turn, a deque's maxlen."""
    model, windows = make(), Windows()
    for step in range(5):
        windows.put(step, model)
    found = find_copies(HolderSearch(models=[model]), [model])
    limited = {(one.place.holder, one.limited) for one in found}
    assert limited == {
        *((f"Windows.{name}", True) for name in ("recent", "ring", "newest")),
        ("Windows.all", False),
    }


class Member:
    """Of a population."""

    def __init__(self, model: nn.Module) -> None:
        self.model = copy.deepcopy(model)


def test_the_other_members_of_an_ensemble_are_no_copies_of_the_first_that_is_called() -> None:
    """They lie under its name, and their turn comes; what lies under another name is a copy all the same."""
    members = [copy.deepcopy(make()) for _ in range(3)]
    population = [Member(members[0]) for _ in range(3)]
    copies = find_copies(HolderSearch(models=members[:1]), [members[0], population[0].model])
    assert copies == ()
    best = copy.deepcopy(members[0])
    (found,) = find_copies(HolderSearch(models=members[:1]), [members[0], population[0].model])
    assert found.place.holder == "best" and best is not members[0]


def test_tensors_of_the_weights_shapes_are_copies_only_where_their_statement_copies_weights() -> None:
    """Perturbations, fast weights and what is scaled by gradients are as large, and no copies."""
    model = make()
    model(torch.ones(1, 8)).sum().backward()
    parameters = list(model.parameters())
    best = [parameter.detach().clone() for parameter in parameters]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    noise = [torch.randn_like(parameter) for parameter in parameters]
    fast = [parameter - 0.1 * parameter.grad for parameter in parameters]  # type: ignore[operator]
    grads = [parameter.grad.clone() for parameter in parameters]  # type: ignore[union-attr]
    delta = {name: value - state[name].clone() for name, value in model.state_dict().items()}
    copies = find_copies(HolderSearch(models=[model]), [model])
    assert {found.place.holder: found.alike for found in copies} == {
        "best": False,
        "state": False,
        "noise": True,
        "fast": True,
        "grads": True,
        "delta": True,
    }
    assert len(best) == len(noise) == len(fast) == len(grads) == len(delta)


class EmaWeights:
    """Averages, and keeps the weights of before to put them back."""

    def __init__(self, model: nn.Module) -> None:
        self.shadow = copy.deepcopy(model.state_dict())
        self.backup: dict[str, torch.Tensor] = {}

    def update(self, model: nn.Module) -> None:
        for name, value in model.state_dict().items():
            self.shadow[name].mul_(0.9).add_(value, alpha=0.1)

    def swap(self, model: nn.Module) -> None:
        for name, value in model.state_dict().items():
            self.backup[name] = value.clone()


class EmaWrittenOut(EmaWeights):
    """The same, made anew in every batch."""

    def update(self, model: nn.Module) -> None:
        for name, value in model.state_dict().items():
            self.shadow[name] = 0.9 * self.shadow[name] + 0.1 * value


@pytest.mark.parametrize("kind", [EmaWeights, EmaWrittenOut])
def test_what_an_average_keeps_besides_is_none(kind: type[EmaWeights]) -> None:
    """The class's name says EMA: of its copies the one that goes on changing is the average, the other only kept."""
    model = make()
    ema = kind(model)
    for _ in range(3):
        ema.update(model)
    (found,) = find_copies(HolderSearch(models=[model]), [model])
    assert found.averaged
    ema.swap(model)
    copies = find_copies(HolderSearch(models=[model]), [model])
    assert {found.place.holder.rpartition(".")[2]: found.averaged for found in copies if found.place.holder} == {
        "shadow": True,
        "backup": False,
    }


def test_another_architecture_is_no_copy() -> None:
    """A second model of other shapes is a model, not a copy."""
    model, other = make(), nn.Linear(8, 16)
    assert find_copies(HolderSearch(models=[model]), [model]) == ()
    assert other is not model


def test_a_loaded_backbone_counts_with_half_the_weights(tmp_path: Path) -> None:
    """A checkpoint of a model with another head was still loaded for nothing; a copy of half a model is no copy."""
    model, path = make(), tmp_path / "backbone.pt"
    torch.save({"0.weight": torch.zeros(16, 8), "0.bias": torch.zeros(16), "2.weight": torch.zeros(9, 16)}, path)
    pretrained = torch.load(path)
    (found,) = find_copies(HolderSearch(models=[model]), [model])
    assert found.place.holder == "pretrained" and is_loaded(found.place) and not is_mapped_to_host(found.place)
    half = {name: tensor.clone() for name, tensor in pretrained.items()}
    del pretrained
    assert find_copies(HolderSearch(models=[model]), [model]) == () and half


class Resumed:
    """Keeps all that it was resumed from, and only asks it for the epoch."""

    def __init__(self, model: nn.Module, path: str) -> None:
        loaded = torch.load(path)
        model.load_state_dict(loaded["model"])
        self.origin = loaded


def test_a_checkpoint_that_is_only_asked_for_its_epoch_is_one_that_was_loaded(tmp_path: Path) -> None:
    """It goes to the statement that loaded it: the weights in it are read no more."""
    model, path = make(), str(tmp_path / "model.pt")
    torch.save({"epoch": 3, "model": model.state_dict()}, path)
    resumed = Resumed(model, path)
    assert resumed.origin["epoch"] == 3
    (found,) = find_copies(HolderSearch(models=[model]), [model])
    assert (found.place.holder, found.place.source) == ("Resumed.origin", "loaded = torch.load(path)")


class Lazy:
    """Loads what it resumes from when that is first read."""

    def __init__(self, path: str) -> None:
        self.path = path

    @functools.cached_property
    def stored(self) -> dict[str, torch.Tensor]:
        return torch.load(self.path)  # type: ignore[no-any-return]


def test_a_checkpoint_in_a_cached_property_is_told_where_it_is_returned(tmp_path: Path) -> None:
    """No statement assigns that attribute: the function under its name makes it."""
    model, path = make(), str(tmp_path / "model.pt")
    torch.save(model.state_dict(), path)
    lazy = Lazy(path)
    model.load_state_dict(lazy.stored)
    (found,) = find_copies(HolderSearch(models=[model]), [model])
    assert found.place.holder == "Lazy.stored" and is_loaded(found.place)
    assert (found.place.source or "").startswith("return torch.load(self.path)")


def wide() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2))


def copied(model: nn.Module) -> nn.Module:
    one = wide()
    one.load_state_dict(model.state_dict())
    return one


class League:
    """Earlier selves to play against."""

    def __init__(self) -> None:
        self.players: list[nn.Module] = []

    def admit(self, agent: nn.Module) -> nn.Module:
        self.players.append(copied(agent))
        return self.players[-1]


class Rated:
    """Each with a name and a score."""

    def __init__(self) -> None:
        self.rated: dict[int, dict[str, object]] = {}

    def admit(self, agent: nn.Module) -> nn.Module:
        player = copied(agent)
        self.rated[len(self.rated)] = {"score": 0.0, "player": player}
        return player


class Pool:
    """The newest of them."""

    def __init__(self) -> None:
        self.pool: list[nn.Module] = []

    def admit(self, agent: nn.Module) -> nn.Module:
        self.pool.append(copied(agent))
        if len(self.pool) > 24:
            self.pool.pop(0)
        return self.pool[-1]


def play(league: League | Rated | Pool, *, train: bool = False) -> Loop:
    agent = wide()
    optimizer = torch.optim.SGD(agent.parameters(), lr=0.1)
    opponents: deque[nn.Module] = deque(maxlen=3)
    own: list[torch.optim.Optimizer] = []
    with Loop(agent, kinds=[ScansProbe]) as loop:
        for index in loop.batches(72):
            if index % 2:
                opponents.append(league.admit(agent))
                loop.add(opponents[-1])
                own += [torch.optim.SGD(opponents[-1].parameters(), lr=0.1)] if train else []
            optimizer.zero_grad()
            loss = agent(torch.randn(4, 8)).sum()
            for opponent in opponents:
                loss = loss + opponent(torch.randn(4, 8)).sum() * (1.0 if train else 0.0)
            loss.backward()
            for one in (optimizer, *own[-3:]):
                one.step()
    return loop


@pytest.mark.parametrize(("kind", "holder"), [(League, "League.players"), (Rated, "Rated.rated")])
def test_opponents_that_only_come_are_copies(kind: type[League | Rated], holder: str) -> None:
    """Though each is called, the list grows by copies, and the fact counts them."""
    loop = play(kind())
    told = loop.of(ModelCopies)
    assert told and {fact.place.holder for fact in told} == {holder} and told[-1].copies >= 16
    assert told[-1].place.function == f"{kind.__name__}.admit"
    assert {fact.place.holder for fact in loop.of(KeptOutputs)} <= {holder}


def test_a_pool_with_a_limit_is_silent() -> None:
    """And so are members that were trained: they have changed since they were made."""
    assert play(Pool()).of(ModelCopies) == []
    assert play(League(), train=True).of(ModelCopies) == []


LATE = 80
"""Batches after which few are looked at."""


def train(loop: Loop, model: nn.Module, batches: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in loop.batches(batches):
        train_on(optimizer, model(torch.ones(4, 8)).sum())


def evaluate(loop: Loop, model: nn.Module) -> None:
    with torch.no_grad():
        for _ in loop.batches(1, Stage.VALIDATION):
            model(torch.ones(4, 8))


def test_copies_that_are_taken_after_late_evaluations_are_told() -> None:
    """The best models so far: the batch of training that comes next is looked at for them."""
    model, best = wide(), list[nn.Module]()
    with Loop(model, kinds=[ScansProbe]) as loop:
        train(loop, model, LATE)
        for _ in range(3):
            for _ in loop.batches(1, Stage.VALIDATION):
                with torch.no_grad():
                    model(torch.ones(4, 8))
                best.append(copied(model))
            train(loop, model, 5)
    told = loop.of(ModelCopies)
    assert [fact.copies for fact in told] == [1, 2, 3]
    assert {(fact.stage, fact.place.holder) for fact in told} == {(Stage.TRAIN, "best")}


def test_weights_that_are_put_aside_for_an_evaluation_are_not() -> None:
    """An average of the weights is swapped in, and out again before training goes on."""
    model = wide()
    with Loop(model, kinds=[ScansProbe]) as loop:
        train(loop, model, LATE)
        for _ in range(3):
            aside = copy.deepcopy(model.state_dict())
            evaluate(loop, model)
            model.load_state_dict(aside)
            del aside
            train(loop, model, 5)
    assert loop.of(ModelCopies) == []


class Teacher:
    """Keeps all that it was loaded from."""

    def __init__(self, path: Path) -> None:
        self.stored = torch.load(path)
        self.model = nn.Linear(8, 2)
        self.model.load_state_dict(self.stored)


def test_a_checkpoint_of_a_model_that_joins_late_is_told(tmp_path: Path) -> None:
    """A round that met it before its model was called took it for nothing."""
    model, path = wide(), tmp_path / "teacher.pt"
    torch.save(nn.Linear(8, 2).state_dict(), path)
    with Loop(model, kinds=[ScansProbe]) as loop:
        train(loop, model, LATE)
        teacher = Teacher(path)
        evaluate(loop, model)
        train(loop, model, 3)
        assert loop.of(CheckpointKept) == []
        loop.add(teacher.model)
        train(loop, model, 3)
    (told,) = loop.of(CheckpointKept)
    assert (told.place.holder, told.bytes) == ("Teacher.stored", 72)


def test_a_copy_that_comes_late_is_told_where_memory_jumped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads every record says so; no round need be due, or still be open in a process of many objects."""
    monkeypatch.setattr("memguard.evidence.kept.incremental_scan.BEGINS", (1_000_000,))
    model = wide()
    with Loop(model, kinds=[ScansProbe]) as loop:
        train(loop, model, LATE)
        best = copied(model)
        train(loop, model, 3)
        assert loop.of(ModelCopies) == []
        loop.watch.jumps += 1
        loop.watch.look_closely(1, surely=True)
        train(loop, model, 1)
    (told,) = loop.of(ModelCopies)
    assert told.place.holder == "best" and best is not model
