"""Batches are counted as the program counts them, in loops of many kinds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FOLDS = """
import torch
from torch import nn

def fold():
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(80):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        return [model(torch.randn(16, 8)).mean().item() for _ in range(10)]

for _ in range(4):
    fold()
"""


def test_the_batches_of_each_stage() -> None:
    """Roll-outs are no validation; models that are asked of the same are one batch; an episode is one."""
    program = Path(__file__).with_name("counts_program.py")
    told = subprocess.run([sys.executable, str(program)], check=True, capture_output=True, text=True).stdout
    assert json.loads(told) == {
        "classifier": {"train": 60, "validation": 20},
        "forgot_eval": {"train": 30, "validation": 10},
        "dqn": {"train": 20, "predict": 80},
        "ppo": {"train": 32, "predict": 64},
        "student_and_teacher": {"train": 40, "validation": 20},
        "encoder_and_decoder": {"train": 20, "validation": 10},
        "one_after_the_other": {"train": 80, "validation": 20},
        "episodes": {"train": 6},
    }


def test_the_first_batch_of_a_later_model_counts(tmp_path: Path) -> None:
    """Folds of a cross-validation: each makes a model that nobody knows yet."""
    program, told = tmp_path / "folds.py", tmp_path / "told.json"
    program.write_text(FOLDS)
    command = [sys.executable, "-m", "memguard", "run", "--device", "cpu", "--json", str(told)]
    subprocess.run([*command, "--logdir", str(tmp_path), str(program)], check=True, capture_output=True)
    assert json.loads(told.read_text())["batches"] == {"train": 320, "validation": 40}
