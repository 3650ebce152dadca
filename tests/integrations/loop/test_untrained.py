"""A program that calls a model in training mode and never trains: each forward is a batch, and a state is named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PLAY = """
import torch
from torch import nn

class Simulator:
    def __init__(self):
        self.motor = nn.Sequential(nn.Linear(12, 64), nn.Tanh(), nn.Linear(64, 12))
        self.position = torch.zeros(256, 12)
        self.speed = torch.zeros(256, 12)
        self.before = torch.zeros(256, 12)

    def advance(self, action):
        force = self.motor(self.position - action)
        self.before, self.speed = self.speed, 0.9 * self.speed + force
        self.position = self.position + 0.01 * self.speed  # the fault

simulator = Simulator()
for turn in range(96):
    simulator.advance(torch.zeros(12))
print(simulator.position.shape)
"""


def test_a_state_of_a_simulator_is_named_and_forwards_are_batches(tmp_path: Path) -> None:
    """One finding, at the state that is made of itself, with no_grad for its cure."""
    program, told = tmp_path / "play.py", tmp_path / "told.json"
    program.write_text(PLAY)
    command = [sys.executable, "-m", "memguard", "run", "--device", "virtual:256MiB", "--json", str(told)]
    subprocess.run([*command, "--logdir", str(tmp_path), str(program)], check=True, capture_output=True)
    run = json.loads(told.read_text())
    line = PLAY.splitlines().index("        self.position = self.position + 0.01 * self.speed  # the fault") + 1
    (finding,) = run["findings"]
    assert (finding["code"], finding["severity"], finding["line"]) == ("MG102", "warning", line)
    assert "torch.no_grad()" in finding["advice"]
    assert 90 <= run["batches"]["train"] <= 96
