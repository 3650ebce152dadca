"""Memory budgets for a block of code."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from memguard.errors import MemGuardError
from memguard.report.baseline import BaselineFile
from memguard.testing import MemoryBudgetExceeded, memory_budget
from memguard.text.units import MIB


def train(batch: int = 64, steps: int = 3) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(batch, 256)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return losses


def test_a_block_within_its_budget_passes() -> None:
    """The handle has the peaks of the block afterwards."""
    with memory_budget("32MiB") as budget:
        train()
    assert 3 * MIB < (budget.allocated_peak_bytes or 0) < 32 * MIB
    assert (budget.reserved_peak_bytes or 0) >= (budget.allocated_peak_bytes or 0)


def test_a_block_above_its_budget_fails_with_both_figures() -> None:
    """The message says how much is used, how much is allowed, and when."""
    with (
        pytest.raises(
            MemoryBudgetExceeded, match=r"step: the peak is .* MiB allocated, .* above the budget of 2.00 MiB"
        ),
        memory_budget("2MiB", device="virtual:64MiB", name="step", fail_on=None),
    ):
        train()


def test_tensors_outside_of_any_model_count() -> None:
    """A block without a model is measured too."""
    with pytest.raises(MemoryBudgetExceeded, match="outside of all batches"), memory_budget("1MiB"):
        torch.zeros(MIB // 2, dtype=torch.float32).add_(1)


def test_a_leak_in_the_block_fails_it() -> None:
    """A finding of warning or worse fails the block and names the line; fail_on=None lets it pass."""

    def leak() -> None:
        kept = []
        model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(40):
            optimizer.zero_grad()
            output = model(torch.randn(256, 256))
            output.square().mean().backward()
            optimizer.step()
            kept.append(model(torch.randn(256, 256)).mean())

    with pytest.raises(MemoryBudgetExceeded, match="MG101 retained-graph"), memory_budget("256MiB"):
        leak()
    with memory_budget("256MiB", fail_on=None) as budget:
        leak()
    assert [each.holder for each in budget.findings if each.code == "MG101"] == ["kept"]


def test_errors_of_the_block_come_out_unchanged() -> None:
    """An exception and an out-of-memory error of the device are the block's own."""
    with pytest.raises(KeyError, match="mine"), memory_budget("32MiB"):
        raise KeyError("mine")
    with pytest.raises(torch.OutOfMemoryError), memory_budget("1MiB", device="virtual:8MiB"):
        train(batch=65536)


def test_a_baseline_is_written_and_held(tmp_path: Path) -> None:
    """A rise beyond the tolerance fails, a missing baseline too; a fall is noted."""
    file = tmp_path / "memory.json"
    options = {"device": "virtual:64MiB", "baseline": file, "name": "step"}
    with pytest.raises(MemoryBudgetExceeded, match="has no baseline of this name"), memory_budget(**options):
        train()
    with memory_budget(**options, update=True):
        train()
    with memory_budget(**options, tolerance=0.0) as same:
        train()
    assert not same.is_below_baseline
    with pytest.raises(MemoryBudgetExceeded, match=r"\+\d+\.\d+% against the baseline's"), memory_budget(**options):
        train(batch=1024)
    with memory_budget(**options) as smaller:
        train(batch=1)
    assert smaller.is_below_baseline
    options["device"] = "virtual:128MiB"
    with pytest.raises(MemoryBudgetExceeded, match="measured on virtual:64MiB"), memory_budget(**options):
        train()


def test_baselines_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    """Two runs of one program write one file, and other names in it stay."""
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file in files:
        for name in ("one", "two"):
            with memory_budget(device="virtual:64MiB", baseline=file, name=name, update=True):
                train()
    assert files[0].read_bytes() == files[1].read_bytes()
    assert BaselineFile(files[0]).names() == ["one", "two"]


@pytest.mark.parametrize("text", ["", "[]", json.dumps({"version": 2, "baselines": {}})])
def test_a_file_that_is_no_baseline_is_refused(tmp_path: Path, text: str) -> None:
    """It is not overwritten either."""
    file = tmp_path / "memory.json"
    file.write_text(text)
    with pytest.raises(MemGuardError, match=r"memory\.json"), memory_budget("32MiB", baseline=file, update=True):
        train()
    assert file.read_text() == text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "needs a budget"),
        ({"budget": "12"}, "no unit"),
        ({"budget": 0}, "greater than zero"),
        ({"budget": "1GiB", "tolerance": -1}, "0.01 for one per cent"),
        ({"budget": "1GiB", "fail_on": "error"}, "info, warning, critical or None"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object], says: str) -> None:
    """The error names the value and the valid ones."""
    with pytest.raises(ValueError, match=says):
        memory_budget(**options)  # type: ignore[arg-type]


def test_a_device_that_counts_nothing_is_refused() -> None:
    """On the CPU there is no allocated memory to hold against a budget."""
    message = "no allocated memory was measured on cpu"
    with pytest.raises(MemoryBudgetExceeded, match=message), memory_budget("1GiB", device="cpu"):
        train()
