"""Rounds over everything in reach suspect what grows, is pinned or copied, and nothing in a steady program."""

from __future__ import annotations

import copy
import weakref
from collections import UserList
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from memguard.evidence.interface import ProbeContext
from memguard.evidence.kept.incremental_scan import APART, BEGINS, ScanSchedule, Suspects
from tests.evidence.loop import record_of


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests' modules keep is left out."""
    monkeypatch.setattr("memguard.heap.roots.user_module_names", lambda: ())


class Program:
    """What a loop keeps, and the rounds that go over it; each batch makes all the steps it wants."""

    def __init__(self, model: nn.Module | None = None) -> None:
        self.kept: dict[str, object] = {}
        self.watch = ProbeContext()
        if model is not None:
            self.watch.add_model(model)
        self.rounds = ScanSchedule()
        self.found: list[Suspects] = []
        self.watch.extra_roots = lambda: [("kept", self.kept)]

    def batch(self, allocated_bytes: int | None = None) -> None:
        """One batch ends."""
        self.watch.batches += 1
        self.watch.find_record = lambda: record_of(allocated_end_bytes=allocated_bytes)
        self.rounds.count += 1
        if self.rounds.is_due():
            self.rounds.begin(self.watch, 1)
        if self.rounds.is_open:
            suspicions = self.rounds.advance(self.watch, [], 1 << 30)
            assert suspicions is not None
            self.found.append(suspicions)


def test_what_gets_a_tensor_in_each_batch_is_suspected() -> None:
    """By its id, with the length it had; a log of numbers is not."""
    program = Program()
    tensors: list[torch.Tensor] = []
    program.kept.update(tensors=tensors, numbers=(numbers := []))
    for batch in range(BEGINS[1]):
        tensors.append(torch.ones(4))
        numbers.append({"loss": 0.5, "batch": batch})
        program.batch()
    assert len(program.found) == 2
    assert program.found[0].grown == {}
    assert program.found[1].grown == {id(tensors): (BEGINS[0], BEGINS[0])}


@pytest.mark.parametrize(
    ("kept", "more"),
    [
        (UserList[torch.Tensor](), lambda kept: kept.append(torch.ones(4)) or kept),
        ([], lambda kept: [*kept, torch.ones(4)]),
        ([], lambda kept: kept.insert(0, torch.ones(4)) or kept),
    ],
    ids=["wrapped", "made anew with each batch", "grows at its front"],
)
def test_whatever_way_a_list_grows_it_is_the_same_list(kept: Any, more: Callable[[Any], Any]) -> None:
    """``UserList``; ``history = history + [x]``; ``history.insert(0, x)``."""
    program = Program()
    for _ in range(BEGINS[1]):
        program.kept["history"] = kept = more(kept)
        program.batch()
    assert id(kept) in program.found[1].grown


@pytest.mark.parametrize("element", [torch.ones, lambda n: (1, {"loss": torch.ones(n)})])
def test_a_list_that_each_batch_fills_anew_is_not_the_same_list(element: Callable[[int], object]) -> None:
    """An episode's losses: by chance there are more of them than in the episode that was looked at before."""
    program = Program()
    for batch in range(BEGINS[1]):
        program.kept["losses"] = [element(4) for _ in range(4 + 2 * batch)]
        program.batch()
    assert not program.found[1].grown


def test_the_parameters_of_a_model_get_no_weak_references() -> None:
    """`torch.utils.swap_tensors` would refuse them, and with it the conversion of a model."""
    model = nn.Linear(4, 4)
    program = Program(model)
    program.kept["parameters"] = parameters = list(model.parameters())
    for _ in range(BEGINS[1]):
        program.batch()
    assert not any(weakref.getweakrefs(parameter) for parameter in parameters)


def test_copies_of_the_weights_are_suspected_and_other_names_of_them_are_not() -> None:
    """A deep copy and a state dict of clones; not the optimizer's list, nor the state dict itself."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    program = Program(model)
    program.kept.update(parameters=list(model.parameters()), state=model.state_dict(), alias=model)
    for _ in range(BEGINS[0]):
        program.batch()
    assert not program.found[0].copies
    for other in (copy.deepcopy(model), {name: value.clone() for name, value in model.state_dict().items()}):
        program = Program(model)
        program.kept["other"] = other
        for _ in range(BEGINS[0]):
            program.batch()
        assert program.found[0].copies


def test_a_small_view_of_a_large_storage_counts_once_two_rounds_saw_it() -> None:
    """A view that changes from batch to batch is none."""
    program = Program()
    program.kept["first"] = torch.ones(1 << 18)[:2]
    for _ in range(BEGINS[1]):
        program.kept["passing"] = torch.ones(1 << 18)[:2]
        program.batch()
    assert len(program.rounds.confirmed) <= 2  # a new storage may take the address of one that died
    assert program.kept["first"].untyped_storage()._cdata in program.rounds.confirmed  # type: ignore[attr-defined]


def test_kept_exceptions_are_suspected() -> None:
    """With their traceback."""
    program = Program()
    try:
        raise ValueError
    except ValueError as error:
        program.kept["error"] = error
    program.kept["plain"] = ValueError()
    for _ in range(BEGINS[0]):
        program.batch()
    assert program.found[0].exceptions == {id(program.kept["error"])}
    del program.kept["error"]


def test_no_third_round_where_nothing_grew() -> None:
    """The device holds what it held, and the host too; a second round looks for graphs, which are in neither figure."""
    program = Program()
    for _ in range(BEGINS[1]):
        program.batch(allocated_bytes=1000)
    assert len(program.found) == 2
    program.rounds._at_begin = (0, 1000, 5)
    program.watch.find_record = lambda: record_of(allocated_end_bytes=1000, host_rss_bytes=5)
    program.rounds.begin(program.watch, 1)
    assert not program.rounds.is_open


def test_an_epoch_that_grew_by_a_model_is_worth_one_more_round() -> None:
    """Where batches are long the next round is hundreds of them away, and with each epoch may come a copy."""
    program = Program()
    for _ in range(BEGINS[2]):
        program.batch(allocated_bytes=1000)
    assert not program.rounds.is_worth_one_more(program.watch, 100)
    taken = []
    for allocated in (1100, 1150, 1250, 9000, 99000):
        program.watch.find_record = lambda now=allocated: record_of(allocated_end_bytes=now)
        if program.rounds.is_worth_one_more(program.watch, 100):
            program.rounds.begin(program.watch, 1)
            program.rounds.advance(program.watch, [], 1 << 30)
            taken.append(allocated)
    assert taken == [1100, 1250]


def test_two_rounds_that_are_asked_for_confirm_what_is_pinned() -> None:
    """Long after those of the beginning, and some batches apart; those that are due come when they would."""
    program = Program()
    for _ in range(100):
        program.batch(allocated_bytes=1000)
    before = len(program.found)
    program.kept["row"] = torch.zeros(64, 4096)[3]
    program.rounds.ask()
    for _ in range(APART + 1):
        program.batch(allocated_bytes=1000)
    assert len(program.found) == before + 2 and len(program.rounds.confirmed) == 1
    assert not program.rounds.is_due()
