"""Forecasts on a machine that has GPUs: the traced step is still that of a child which must not touch them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.cuda

FORECASTS = """
import torch
from torch import nn
from memguard.forecast import forecast_of

torch.set_num_threads(1)

def build(_):
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    return model, optimizer, lambda: model(torch.randn(8, 64)).mean().backward()

for _ in range(16):
    print(forecast_of(build, device="nvidia-h100", suggest=False, steps=1).verdict)
"""


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_name() != "Null GPU", reason="needs eight GPUs"
)
def test_autograd_s_threads_for_eight_gpus_find_a_thread_pool() -> None:
    """After the parent has set its number of threads, none of sixteen children is aborted ("Invalid thread pool")."""
    variables = {**os.environ, "NULLGPU_DEVICES": "8", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore", "-c", FORECASTS]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["fits"] * 16, done.stderr[-2000:]
