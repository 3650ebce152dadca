"""Large variables of generators that wait while a batch is trained on."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from memguard.evidence.host.generators import GeneratorsProbe
from memguard.evidence.peaks.locals import LocalsProbe, find_waiting_locals
from memguard.records.facts import LargeLocals
from memguard.records.stats import BatchRecord, Stage
from tests.evidence.loop import Loop

MIB = 1 << 20


def line_of(marker: str) -> int:
    with open(__file__) as file:
        return next(number for number, text in enumerate(file, 1) if text.rstrip().endswith(f"# {marker}"))


def read_once() -> Iterator[torch.Tensor]:
    recording = torch.ones(MIB) * 2  # recording
    frames = recording.view(64, -1).mean(1)
    while True:
        for rows in torch.randperm(64).split(8):
            yield frames[rows]


def read_by_each_batch() -> Iterator[torch.Tensor]:
    recording = torch.ones(64, MIB // 64) * 2
    while True:
        for rows in torch.randperm(64).split(8):
            yield recording[rows]


def given_out_in_views() -> Iterator[torch.Tensor]:
    recording = torch.ones(64, MIB // 64) * 2
    for number, rows in enumerate(recording.split(1)):
        yield rows + number if number == 7 else rows


def let_go() -> Iterator[torch.Tensor]:
    recording = torch.ones(MIB) * 2
    frames = recording.view(64, -1).mean(1)
    del recording
    while True:
        yield frames


def made_for_each_batch() -> Iterator[torch.Tensor]:
    while True:
        raw = torch.ones(MIB) * 2
        yield raw.view(64, -1).mean(1)


def kept_by_others() -> Iterator[torch.Tensor]:
    recording = torch.ones(MIB) * 2
    KEPT.append([recording])
    frames = recording.view(64, -1).mean(1)
    while True:
        yield frames


KEPT: list[list[torch.Tensor]] = []


def look(program: Callable[[], Iterator[torch.Tensor]], *, on_host: bool = True) -> list[tuple[str, int | None]]:
    """What is found while the second batch is out."""
    batches = program()
    next(batches), next(batches)
    found = find_waiting_locals(MIB, [weakref.ref(batches)], ignore=lambda key: False, on_host=on_host)
    return [(local.name, local.place.line) for local in found]


def test_what_a_generator_read_before_its_first_batch_is_found() -> None:
    """Nothing reads it again, and it stays while the generator is not over."""
    assert look(read_once) == [("recording", line_of("recording"))]


def test_host_memory_is_none_of_a_devices() -> None:
    """Where a device is watched, what a generator has on the host does not count."""
    assert look(read_once, on_host=False) == []


@pytest.mark.parametrize(
    "program", [read_by_each_batch, given_out_in_views, let_go, made_for_each_batch, kept_by_others]
)
def test_what_is_wanted_is_silent(program: Callable[[], Iterator[torch.Tensor]]) -> None:
    """Read for the next batch, given out in parts, let go, as old as a batch, or held by others too."""
    assert look(program) == []
    KEPT.clear()


def test_it_is_told_at_a_step_once_the_generator_is_known() -> None:
    """The fact has the variable's line, its bytes and the batch's peak."""
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Loop(model, kinds=[GeneratorsProbe, LocalsProbe]) as loop:
        loop.record = BatchRecord(batch=0, stage=Stage.TRAIN, time=0.0, seconds=0.0, allocated_peak_bytes=8 * MIB)
        for _, x in zip(loop.batches(42), read_once(), strict=False):
            model(x).sum().backward()
            optimizer.step()
    (fact,) = loop.of(LargeLocals)
    assert (fact.names, fact.place.line, fact.bytes) == (("recording",), line_of("recording"), 4 * MIB)
    assert fact.peak_bytes == 8 * MIB
