"""`memguard check`: memory as a test."""

import json
from pathlib import Path

import pytest

from memguard.cli import main

STEP = """
import torch
from torch import nn
kept = []

def make(batch=64):
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    def step():
        optimizer.zero_grad()
        loss = model(torch.randn(batch, 256, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        return loss
    return model, optimizer, step

def leaky():
    model, optimizer, step = make()
    def keeping():
        step()
        kept.append(model(torch.randn(64, 256, device="cuda")))
    return model, optimizer, keeping
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(STEP)
    return str(path)


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["check", *arguments])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_a_step_within_its_budget_passes(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0, with the peak."""
    code, text = check(capsys, f"{file}:make", "--budget", "2GiB")
    assert code == 0
    assert "passed. Peak:" in text


def test_a_step_above_its_budget_fails(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, in JSON too."""
    code, text = check(capsys, f"{file}:make", "--budget", "2GiB", "--batch", "2000000", "--json")
    data = json.loads(text)
    assert (code, data["passed"]) == (1, False)
    assert "runs out of memory on 2GiB" in data["failures"][0]


def test_a_step_that_keeps_more_each_time_fails(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Growth is a failure, however large the budget."""
    code, text = check(capsys, f"{file}:leaky", "--budget", "8GiB")
    assert code == 1
    assert "each step keeps" in text


def test_a_baseline_is_written_and_held(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The peak may rise by the tolerance, and no more."""
    target, base = f"{file}:make", str(tmp_path / "base.json")
    with_base = (target, "--budget", "2GiB", "--baseline", base)
    assert check(capsys, target, "--budget", "2GiB", "--write-baseline", base)[0] == 0
    assert check(capsys, *with_base)[0] == 0
    code, text = check(capsys, *with_base, "--batch", "4096", "--tolerance", "3%")
    assert code == 1
    assert "the baseline has" in text
    assert check(capsys, *with_base, "--tolerance", "lots")[0] == 2
    assert check(capsys, f"{file}:leaky", "--budget", "2GiB", "--baseline", base)[0] == 2
