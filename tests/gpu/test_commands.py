"""The command line on a machine with a GPU: a script guarded with its code unchanged, its report, the doctor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

from tests.gpu.card import line_of

ROOT = Path(__file__).parents[2]
SCRIPT = """
import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 1)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
history = []
for batch in range(30):
    loss = net(torch.randn(8, 3, 64, 64, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(net(torch.randn(8, 3, 64, 64, device="cuda")).mean())  # KEPT
print(f"loss {loss.item():.4f}")
"""


def memguard(*arguments: str, cwd: Path) -> str:
    """What the command prints, on both streams; it must end well."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "memguard", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        cwd=cwd,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


def test_a_script_is_guarded_on_the_gpu_that_it_uses(tmp_path: Path) -> None:
    """Found by itself; the leak is named, and the report on disk says the same of the same card."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    said = memguard("run", "--logdir", str(tmp_path / "run"), str(script), cwd=tmp_path)
    assert "loss " in said and "MG101" in said
    told = json.loads(memguard("report", str(tmp_path / "run"), "--json", cwd=tmp_path))
    (found,) = [each for each in told["findings"] if each["code"] == "MG101"]
    assert (found["line"], found["holder"]) == (line_of(str(script), "KEPT"), "history")
    assert told["device_name"] == torch.cuda.get_device_name()


def test_the_doctor_knows_the_card(tmp_path: Path) -> None:
    """Its name, and that peaks can be measured."""
    said = memguard("doctor", cwd=tmp_path)
    assert torch.cuda.get_device_name() in said
