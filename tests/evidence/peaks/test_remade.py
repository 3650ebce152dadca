"""What is made anew now and then while the old one is there: large tensors between epochs, models in folds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from memguard.evidence.peaks.periodic_reallocation import ModelSeriesProbe, RemadeProbe
from memguard.records.facts import ReboundTensor
from memguard.source.remaking import remade_variable
from tests.evidence.loop import Loop, line_of, record_of

MIB = 1 << 20


class Agent:
    """Collects into a buffer of its own before each epoch."""

    def __init__(self) -> None:
        self.rollout = torch.empty(0)
        self.scratch = torch.empty(0)

    def collect(self) -> None:
        self.rollout = torch.zeros(4 * MIB // 4)  # collected

    def learn(self) -> None:
        self.scratch = torch.zeros(4 * MIB // 4)


def trained(*, standing_out: bool, before: int = 0) -> Loop:
    agent, model = Agent(), nn.Linear(2, 2)
    with Loop(model, kinds=[RemadeProbe]) as loop:
        for _ in loop.batches(before):
            loop.record = record_of(allocated_peak_bytes=10 * MIB)
        for index in loop.batches(30):
            first = index % 6 == 0
            if first:
                agent.collect()
            agent.learn()
            loop.record = record_of(allocated_peak_bytes=14 * MIB if first and standing_out else 10 * MIB)
    return loop


def test_a_buffer_made_anew_before_each_epoch_is_told_where_its_peaks_stand_out() -> None:
    """At the statement that makes it; what every batch makes anew is no such thing, and even peaks are no reason."""
    (fact,) = trained(standing_out=True).of(ReboundTensor)
    assert (fact.place.holder, fact.place.line, fact.bytes) == ("Agent.rollout", line_of("collected"), 4 * MIB)
    assert trained(standing_out=False).facts == []


def test_what_is_made_anew_once_is_not_told() -> None:
    """A restart from a checkpoint, or a curriculum's next stage, comes once."""
    agent, model = Agent(), nn.Linear(2, 2)
    agent.collect()
    with Loop(model, kinds=[RemadeProbe]) as loop:
        for index in loop.batches(20):
            if index == 8:
                agent.collect()
            loop.record = record_of(allocated_peak_bytes=14 * MIB if index in (8, 16) else 10 * MIB)
    assert loop.facts == []


def test_a_row_of_batches_that_stand_out_is_one_look() -> None:
    """A bank is filled in several calls of the model, all of which stand out: no look is left over for later epochs."""
    agent, model = Agent(), nn.Linear(2, 2)
    with Loop(model, kinds=[RemadeProbe]) as loop:
        for index in loop.batches(72):
            filling = index % 18 < 6
            if index % 18 == 6:
                agent.collect()
            loop.record = record_of(allocated_peak_bytes=14 * MIB if filling else 10 * MIB)
    (fact,) = loop.of(ReboundTensor)
    assert (fact.place.holder, fact.place.line) == ("Agent.rollout", line_of("collected"))


def test_a_model_that_is_dropped_first_is_not_told() -> None:
    """``del`` at the end of a turn, or a function of its own for each fold."""

    def fold(loop: Loop) -> None:
        model = nn.Linear(1024, 1024)
        loop.probes.add_model(model)
        for _ in loop.batches(6):
            model(torch.ones(1, 1024))

    with Loop(kinds=[ModelSeriesProbe]) as loop:
        for _ in range(4):
            another = nn.Linear(1024, 1024)
            loop.probes.add_model(another)
            for _ in loop.batches(6):
                another(torch.ones(1, 1024))
            del another
        for _ in range(4):
            fold(loop)
    assert loop.facts == []


LOOPS = {
    "made": ("for i in r:\n    x = make()\n    use(x)\n", 2),
    "made in part": ("for i in r:\n    x, y = make(), 1\n", 2),
    "deleted": ("for i in r:\n    x = make()\n    del x\n", None),
    "set to None": ("for i in r:\n    x = None\n    x = make()\n", None),
    "set to None in a loop around it": ("for e in r:\n    x = None\n    for i in r:\n        x = make()\n", None),
    "set to None first of all": ("x = None\nfor i in r:\n    x = make()\n", 3),
    "deleted after the loop": ("for i in r:\n    x = make()\ndel x\n", 2),
    "made in an inner loop": ("for e in r:\n    for i in r:\n        x = make()\n    use(x)\n", 3),
    "before the loop": ("x = make()\nfor i in r:\n    use(x)\n", None),
    "rows picked by an index": ("for i in r:\n    x = x[perm]\n", 2),
    "both picked": ("for i in r:\n    y, x = y[perm], x[perm]\n", 2),
    "arithmetic": ("for i in r:\n    x = x * 2\n", 2),
    "a slice": ("for i in r:\n    x = data[:5]\n", None),
    "a slice between bounds that are worked out": ("for i in r:\n    x = data[i * 5 : i * 5 + 5]\n", None),
    "a first element": ("for i in r:\n    x = data[0]\n", None),
    "another name": ("for i in r:\n    x = data\n", None),
    "changed places": ("for i in r:\n    x, y = y, x\n", None),
    "a number": ("for i in r:\n    x = 1\n", None),
    "in a function of the loop": ("for i in r:\n    def f():\n        x = make()\n", None),
}


@pytest.mark.parametrize("case", LOOPS)
def test_variables_that_a_loop_makes_anew(case: str, tmp_path: Path) -> None:
    """Only a call in the loop itself makes something, and what is dropped before it doubles nothing."""
    text, line = LOOPS[case]
    path = tmp_path / "script.py"
    path.write_text(text)
    place = remade_variable(str(path), "<module>", 1, "x")
    assert (place.line if place is not None else None) == line


class Chunks:
    """Goes through what is there already, or picks all of it in another order."""

    def __init__(self) -> None:
        self.parts = [torch.zeros(MIB) for _ in range(3)]
        self.rays = torch.zeros(MIB)
        self.batch = self.rays

    def turn(self, number: int) -> None:
        self.part = self.parts[number % 3]

    def shuffle(self, order: torch.Tensor) -> None:
        self.rays = self.rays[order]  # shuffled

    def take(self) -> None:
        self.batch = self.rays[:64].view(8, 8)


@pytest.mark.parametrize(("shuffled", "holders"), [(True, ["Chunks.rays"]), (False, [])])
def test_all_rows_in_another_order_are_told_and_a_chunk_of_several_is_not(shuffled: bool, holders: list[str]) -> None:
    """Nor is a slice of what is made again: it is what all its names share that is new."""
    chunks, model = Chunks(), nn.Linear(2, 2)
    order = torch.arange(MIB)
    with Loop(model, kinds=[RemadeProbe]) as loop:
        for index in loop.batches(30):
            first = index % 6 == 0
            if first:
                chunks.turn(index // 6)
                if shuffled:
                    chunks.shuffle(order)
            chunks.take()
            loop.record = record_of(allocated_peak_bytes=14 * MIB if first else 10 * MIB)
    assert [fact.place.holder for fact in loop.of(ReboundTensor)] == holders
