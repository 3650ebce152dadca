"""Variables that live too long on a device that is far from full: told for what they add to a batch's peak."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from memguard.evidence.kept.outputs import OutputsProbe
from memguard.evidence.peaks.locals import LocalsProbe
from memguard.records.facts import LargeLocals, PreviousOutputsAlive
from memguard.records.findings import Severity
from memguard.records.stats import MemoryStats
from memguard.rules.lifetimes import LocalsAlive, PreviousBatchAlive
from tests.evidence.loop import Loop, record_of
from tests.rules.evidence import AT, GIB, MIB, PLACE, judge, record, run_of

WIDTH = 64


def trained(peak: int, kinds: list[Any], so_far: int | None = None) -> Loop:
    """Six steps, each with a table of 4 MiB that is read before the forward alone, and outputs of 2 MiB kept.

    Args:
        peak: Of a whole batch.
        kinds: The probes.
        so_far: The peak wherever it is read in a batch, if that is another.
    """
    model = nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = {"device_total_bytes": 1024 * MIB, "read": lambda: MemoryStats(allocated_peak_bytes=so_far or peak)}

    def step(x: torch.Tensor) -> torch.Tensor:
        table = torch.ones(MIB)
        scale = table.sum() / MIB
        out: torch.Tensor = model(x * scale)
        out.sum().backward()
        optimizer.step()
        return out.detach()

    with Loop(model, kinds=kinds, **watch) as loop:
        loop.record = record_of(allocated_peak_bytes=peak)
        for _ in loop.batches(6):
            out = step(torch.randn(MIB // 2 // WIDTH, WIDTH))
        assert out is not None
    return loop


@pytest.mark.parametrize(("peak", "told"), [(8 * MIB, 1), (40 * MIB, 0)])
def test_a_local_that_is_much_of_the_peak_is_told(peak: int, told: int) -> None:
    """Nothing reads it after the forward begins; the input, which the forward reads, is none of them."""
    facts = trained(peak, [LocalsProbe]).of(LargeLocals)
    # The table is told at the backward; at the step the last batch's output, until the function returns.
    assert [(fact.names, fact.bytes, fact.at) for fact in facts] == [
        (("table",), 4 * MIB, "backward"),
        (("out",), 2 * MIB, "optimizer step"),
    ][: 2 * told]
    assert all(fact.peak_bytes == peak for fact in facts)


@pytest.mark.parametrize(("peak", "told"), [(8 * MIB, 2), (30 * MIB, 3), (80 * MIB, 0)])
def test_outputs_that_are_some_of_the_peak_are_told(peak: int, told: int) -> None:
    """The last batch's outputs add to it, however large the device is."""
    facts = trained(peak, [OutputsProbe]).of(PreviousOutputsAlive)
    assert [fact.place.holder for fact in facts] == ["out"] * told
    assert all(fact.peak_in_forward and fact.peak_bytes == peak for fact in facts)


def test_all_variables_that_hold_the_last_outputs_are_to_go() -> None:
    """A tuple and one of its parts: to let go of either alone frees nothing."""
    model = nn.Linear(WIDTH, WIDTH)
    watch = {"device_total_bytes": 1024 * MIB, "read": lambda: MemoryStats(allocated_peak_bytes=8 * MIB)}

    def train() -> list[PreviousOutputsAlive]:
        with Loop(model, kinds=[OutputsProbe], **watch) as loop:
            loop.record = record_of(allocated_peak_bytes=8 * MIB)
            for _ in loop.batches(6):
                answer = (model(torch.randn(MIB // 2 // WIDTH, WIDTH)).detach(), "ok")
                out, said = answer
            assert said == "ok" and out is not None
        return loop.of(PreviousOutputsAlive)

    facts = train()
    assert {frozenset((fact.place.holder, *fact.beside)) for fact in facts} == {frozenset(("answer", "out"))}
    finding = judge(PreviousBatchAlive(), *facts, run=run_of(limit_bytes=64 * MIB))[-1]
    assert finding.advice.startswith(("del answer, out at", "del out, answer at"))


@pytest.mark.parametrize(("so_far", "told"), [(30, True), (40, False)])
def test_a_local_that_is_some_of_the_peak_is_told_where_the_peak_is_yet_to_come(so_far: int, told: bool) -> None:
    """What made the peak before the forward may have done without it."""
    facts = trained(40 * MIB, [LocalsProbe], so_far=so_far * MIB).of(LargeLocals)
    assert [(fact.names, fact.at) for fact in facts] == [(("table",), "backward")] * told


def test_much_of_a_small_peak_is_no_warning() -> None:
    """It is a remark; a warning is for what is much of the device."""
    fact = PreviousOutputsAlive(**AT, bytes=40 * MIB, peak_in_forward=True, peak_bytes=100 * MIB)
    assert [finding.severity for finding in judge(PreviousBatchAlive(), fact, fact)] == [Severity.INFO]
    local = LargeLocals(**AT, names=("table",), bytes=40 * MIB, peak_bytes=100 * MIB)
    (finding,) = judge(LocalsAlive(), local)
    assert "table (40.0 MiB, of a peak of 100 MiB) is alive" in finding.message


def test_what_is_there_until_the_backward_raises_the_peak_too() -> None:
    """Told wherever the peak came, but as information: the loss may want it."""
    place = replace(PLACE, holder="Trainer.last", source="self.last = outputs")
    fact = PreviousOutputsAlive(**{**AT, "place": place}, bytes=4 * GIB, peak_in_forward=False)
    run = run_of(limit_bytes=20 * GIB)
    full = record(0, allocated_peak_bytes=19 * GIB)
    assert judge(PreviousBatchAlive(), full, fact, fact, run=run) == []
    kept = replace(fact, until_backward=True)
    (finding,) = judge(PreviousBatchAlive(), full, kept, kept, run=run)
    assert finding.severity is Severity.INFO and "self.last = None" in finding.advice
    (finding,) = judge(PreviousBatchAlive(), full, *[replace(kept, peak_in_forward=True)] * 2, run=run)
    assert finding.severity is Severity.WARNING


@pytest.mark.parametrize(("resident", "told"), [(False, 1), (True, 0)])
def test_what_the_step_gave_back_is_there_all_through_the_next_one(resident: bool, told: int) -> None:
    """Unless something else has it as well: then it does not go with the variable."""
    model, bank = nn.Linear(WIDTH, WIDTH), SimpleNamespace(row=torch.zeros(MIB))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    peak = 40 * MIB
    watch = {"device_total_bytes": 1024 * MIB, "read": lambda: MemoryStats(allocated_peak_bytes=peak)}

    def step(x: torch.Tensor) -> tuple[float, torch.Tensor]:
        out = model(x).sum()
        out.backward()
        optimizer.step()
        return out.item(), bank.row if resident else torch.zeros(MIB)

    with Loop(model, kinds=[LocalsProbe], **watch) as loop:
        loop.record = record_of(allocated_peak_bytes=peak)
        total = 0.0
        for _ in loop.batches(6):
            loss, probs = step(torch.randn(4, WIDTH))
            total += loss + float(probs.mean())
    facts = loop.of(PreviousOutputsAlive)
    assert [(fact.place.holder, fact.bytes, fact.steady) for fact in facts] == [("probs", 4 * MIB, True)] * told
    assert loop.of(LargeLocals) == []


@pytest.mark.parametrize(("resident", "told"), [(True, 0), (False, 1)])
def test_what_a_dataset_holds_too_does_not_go_with_the_variable(resident: bool, told: int) -> None:
    """Though the function made it, and reads it no more."""
    model = nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    peak = 40 * MIB
    watch = {"device_total_bytes": 256 * MIB, "read": lambda: MemoryStats(allocated_peak_bytes=peak)}

    def fit(loop: Loop, data: TensorDataset) -> None:
        for _ in loop.batches(6):
            model(data.tensors[0][:1].expand(4, WIDTH)).sum().backward()
            optimizer.step()

    def train(loop: Loop) -> None:
        targets = torch.zeros(4 * MIB) + 1
        fit(loop, TensorDataset(targets if resident else targets[:1].clone()))

    with Loop(model, kinds=[LocalsProbe], **watch) as loop:
        loop.record = record_of(allocated_peak_bytes=peak)
        train(loop)
    assert [(fact.names, fact.bytes) for fact in loop.of(LargeLocals)] == [(("targets",), 16 * MIB)] * told
