"""Copies of the weights that come long after the first batches, or beside evaluations."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from memguard.evidence.kept.scans import ScansProbe
from memguard.records.facts import CheckpointKept, ModelCopies
from memguard.records.stats import Stage
from tests.evidence.loop import Loop, train_on

LATE = 80
"""Batches after which few are looked at."""


def make() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2))


def copied(model: nn.Module) -> nn.Module:
    one = make()
    one.load_state_dict(model.state_dict())
    return one


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
    model, best = make(), list[nn.Module]()
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
    model = make()
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
    model, path = make(), tmp_path / "teacher.pt"
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
    model = make()
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
