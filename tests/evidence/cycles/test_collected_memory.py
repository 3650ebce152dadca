"""Tensors of any kind that wait for the collector, by what the records of batches show."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch

from memguard.evidence.cycles.collected_graphs import CyclesProbe
from memguard.evidence.cycles.collected_memory import HITS, CollectedMemoryProbe
from memguard.records.facts import FreedByCollector
from memguard.records.stats import Stage
from memguard.text.units import MIB
from tests.evidence.loop import Loop, record_of

BYTES = 2 * MIB


class Table:
    def __init__(self, *, circular: bool) -> None:
        self.rows = torch.empty(BYTES, dtype=torch.uint8)
        self.get = (lambda: self.rows) if circular else (lambda rows=self.rows: rows)


def pyramid() -> None:
    levels = [torch.empty(BYTES // 2, dtype=torch.uint8) for _ in range(2)]

    def descend(index: int) -> None:
        if index + 1 < len(levels):
            descend(index + 1)

    descend(0)


def run(
    turn: Callable[[], Any],
    ends: Callable[[int], int | None],
    *,
    batches: int = 60,
    collect: int = 0,
    train: int = 1,
    **watch: Any,
) -> list[FreedByCollector]:
    """A loop whose batches end with so much memory; the collector runs once in so many, one in so many is trained."""
    with Loop(kinds=[CyclesProbe, CollectedMemoryProbe], **watch) as loop:
        gc.disable()
        for index in loop.batches(batches):
            turn()
            if collect and index % collect == collect - 1:
                gc.collect()
            end = ends(index)
            peak = None if end is None else end + MIB
            stage = Stage.VALIDATION if index % train != train // 2 else Stage.TRAIN
            loop.record = record_of(index, stage, allocated_end_bytes=end, allocated_peak_bytes=peak)
    return loop.of(FreedByCollector)


@pytest.mark.parametrize(("turn", "holder"), [(pyramid, "descend"), (lambda: Table(circular=True), "Table.get")])
def test_memory_that_rises_is_looked_at(turn: Callable[..., Any], holder: str) -> None:
    """What hangs on circles is told, before the collector ever ran; with its size."""
    (fact,) = run(turn, lambda index: index * BYTES)
    assert holder in str(fact.place.holder) and fact.circles >= 8 and fact.bytes >= fact.circles * BYTES
    assert not fact.is_collected and fact.place.line is not None


def test_a_short_saw_tooth_is_looked_at() -> None:
    """The collector runs so often that the floor never rises: its falls are seen."""
    facts = run(lambda: Table(circular=True), lambda index: (1 + index % 6) * BYTES, collect=6, batches=48)
    assert [fact.place.holder for fact in facts] == ["Table.get"]
    assert facts[0].is_collected  # by calls, with the collector switched off


def test_the_collector_runs_between_training_batches() -> None:
    """In the forwards of a search, of which there are many for each step."""
    ends = lambda index: (1 + index % 24) * BYTES  # noqa: E731
    facts = run(lambda: Table(circular=True), ends, collect=24, train=8, batches=160)
    assert [fact.place.holder for fact in facts] == ["Table.get"]


def test_the_collector_was_there_just_before_the_looks() -> None:
    """Half of what came together is enough, where two looks find it at one place; a little of it is not."""
    ends = lambda index: 40 * MIB + (index % 16) * BYTES  # noqa: E731
    facts = run(lambda: Table(circular=True), ends, collect=5, batches=80)
    assert [(fact.place.holder, fact.bytes) for fact in facts] == [("Table.get", 4 * BYTES)]
    assert run(lambda: Table(circular=True), ends, collect=2, batches=80) == []


def test_without_numbers_the_collections_are_counted() -> None:
    """As on the CPU: those that found garbage, after the first batches."""
    facts = run(lambda: Table(circular=True), lambda index: None, collect=10)
    assert [fact.place.holder for fact in facts] == ["Table.get"]
    assert run(lambda: Table(circular=True), lambda index: None, collect=10, batches=10 * HITS) == []


@pytest.mark.parametrize(("turn", "whole"), [(list, 0), (lambda: Ring(), 1), (lambda: Table(circular=True), 1)])
def test_without_numbers_few_looks_go_through_all_objects(turn: Callable[[], Any], whole: int) -> None:
    """Where young garbage holds no tensor one look is enough, and only what it kept is freed by a whole collection."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            seen.append(info["generation"])

    def young(index: int) -> None:
        if index % 10 == 9:
            gc.collect(0)

    gc.callbacks.append(note)
    try:
        run(turn, young, batches=20 * HITS)
    finally:
        gc.callbacks.remove(note)
    assert seen.count(2) == whole


class Ring:
    """A circle without a tensor."""

    def __init__(self) -> None:
        self.own = self


def test_what_reference_counting_frees_is_silent() -> None:
    """Though memory rises, or falls when the collector runs, for other reasons; and so is what somebody keeps."""
    assert run(lambda: Table(circular=False), lambda index: index * BYTES) == []
    assert run(lambda: Table(circular=False), lambda index: (1 + index % 6) * BYTES, collect=6) == []
    kept: list[Table] = []
    assert run(lambda: kept.append(Table(circular=True)), lambda index: index * BYTES, batches=30) == []


class Small:
    def __init__(self) -> None:
        self.rows, self.me = torch.ones(4), self


def test_small_garbage_is_silent() -> None:
    """Circles that hold little, beside something else that grows; and much less than a batch takes."""
    assert run(Small, lambda index: index * BYTES) == []
    much = 400 * MIB
    assert run(lambda: Table(circular=True), lambda index: much * (1 + index // 8), batches=40) == []


def test_the_collector_is_left_alone() -> None:
    """No callback stays behind, whether or not something was told."""
    callbacks = len(gc.callbacks)
    run(lambda: Table(circular=True), lambda index: index * BYTES)
    run(lambda: None, lambda index: BYTES)
    assert len(gc.callbacks) == callbacks and gc.garbage == []
