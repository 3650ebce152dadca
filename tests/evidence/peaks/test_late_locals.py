"""What something rarer than a batch leaves in local variables."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from memguard.evidence.peaks.locals import LateLocalsProbe
from memguard.records.facts import LargeLocals
from memguard.records.stats import BatchRecord, Stage
from tests.evidence.loop import Loop

MIB = 1 << 20


def line_of(marker: str) -> int:
    with open(__file__) as file:
        return next(number for number, text in enumerate(file, 1) if text.rstrip().endswith(f"# {marker}"))


def images(count: int = 4) -> list[torch.Tensor]:
    return [torch.zeros(MIB // 4) for _ in range(count)]


class Step:
    """One training step, whose record has the peak that is given."""

    def __init__(self, loop: Loop) -> None:
        self.model, self.loop = nn.Linear(2, 2), loop
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def __call__(self, peak: int) -> None:
        self.optimizer.zero_grad()
        self.model(torch.ones(1, 2)).sum().backward()
        self.optimizer.step()
        self.loop.record = BatchRecord(
            batch=0, stage=Stage.TRAIN, time=0.0, seconds=0.0, allocated_peak_bytes=peak * MIB
        )


def left(loop: Loop, step: Step) -> None:
    for turn in loop.batches(16):
        step(10 if turn > 8 else 6)
        if turn == 8:
            sheet = images()  # sheet
            torch.cat(sheet)


def left_with_a_first_value(loop: Loop, step: Step) -> None:
    sheet = None
    for turn in loop.batches(16):
        step(10 if turn > 8 else 6)
        if turn == 8:
            sheet = {"images": images()}  # first value
            len(sheet)


def left_before_the_first_batch(loop: Loop, step: Step) -> None:
    if step is not None:
        sheet = images()  # sanity
        torch.cat(sheet)
    for _ in loop.batches(16):
        step(10)


def read_at_the_end(loop: Loop, step: Step) -> int:
    sheet = images()
    for turn in loop.batches(16):
        step(10 if turn > 8 else 6)
        if turn == 8:
            sheet = images()
    return len(sheet)


def kept_elsewhere(loop: Loop, step: Step) -> None:
    board: list[torch.Tensor] = []
    for turn in loop.batches(16):
        step(10 if turn > 8 else 6)
        if turn == 8:
            sheet = images()
            board.extend(sheet)
    assert board


def kept_as_one(loop: Loop, step: Step) -> None:
    for turn in loop.batches(16):
        step(10 if turn > 8 else 6)
        if turn == 8:
            sheet = torch.zeros(MIB)
            step.sheet = sheet  # type: ignore[attr-defined]


def passed_on(loop: Loop, step: Step) -> None:
    step.sheets = []  # type: ignore[attr-defined]
    for turn in loop.batches(16):
        step(10 if turn > 8 else 6)
        if turn == 8:
            sheet = images()
            step.sheets.append(sheet)  # type: ignore[attr-defined]


def made_in_every_turn(loop: Loop, step: Step) -> None:
    for turn in loop.batches(16):
        if turn % 2:
            crops = images()
            torch.cat(crops)
        else:
            crops = images()
            torch.stack(crops)
        step(10 if turn > 8 else 6)


def let_go(loop: Loop, step: Step) -> None:
    for turn in loop.batches(16):
        step(10 if turn == 8 else 6)
        if turn == 8:
            sheet = images()
            del sheet


@pytest.mark.parametrize(
    ("program", "marker"),
    [(left, "sheet"), (left_with_a_first_value, "first value"), (left_before_the_first_batch, "sanity")],
)
def test_lists_that_lie_there_through_later_steps_are_told(program: Callable[..., object], marker: str) -> None:
    """A list or dict that a branch made once and nothing reads any more, where it was made."""
    with Loop(kinds=[LateLocalsProbe]) as loop:
        step = Step(loop)
        loop.add(step.model)
        program(loop, step)
    (fact,) = loop.of(LargeLocals)
    assert (fact.names, fact.place.line, fact.bytes) == (("sheet",), line_of(marker), 4 * MIB)


@pytest.mark.parametrize(
    "program", [read_at_the_end, kept_elsewhere, kept_as_one, passed_on, made_in_every_turn, let_go]
)
def test_lists_that_are_wanted_or_gone_are_silent(program: Callable[..., object]) -> None:
    """Read later, held by others too, made anew by each turn, or let go."""
    with Loop(kinds=[LateLocalsProbe]) as loop:
        step = Step(loop)
        loop.add(step.model)
        program(loop, step)
    assert loop.of(LargeLocals) == []
