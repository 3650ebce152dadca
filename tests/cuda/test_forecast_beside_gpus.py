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


IN_USE = """
import sys
import torch
from torch import nn
from torch.nn import functional
from memguard.errors import MemGuardError
from memguard.forecast import forecast_of

def convolutions(_):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(1568, 4)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = torch.randn(2, 3, 16, 16, device="cuda"), torch.zeros(2, dtype=torch.long, device="cuda")
    def step():
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model, optimizer, step

def recurrent(_):
    model = nn.GRU(8, 8).cuda().bfloat16()
    return model, None, lambda: model(torch.zeros(4, 2, 8, device="cuda", dtype=torch.bfloat16))[0].sum().backward()

if sys.argv[1] == "in use":
    torch.zeros(1, device="cuda")
elif sys.argv[1] == "counted":
    torch.cuda.is_available()
for build in (convolutions, recurrent):
    try:
        print(forecast_of(build, suggest=False).allocated_peak_bytes)
    except MemGuardError as error:
        print(error)
print(torch.cuda.is_initialized())
"""


def said(use: str) -> list[str]:
    command = [sys.executable, "-W", "ignore", "-c", IN_USE, use]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@pytest.mark.parametrize("use", ["in use", "counted"])
def test_a_process_that_uses_cuda_is_forecast_like_one_that_does_not(use: str) -> None:
    """A fork of it cannot ask the driver; where PyTorch itself must, the error says what to do instead."""
    clean, found = said("not at all"), said(use)
    assert found[0] == clean[0] and int(found[0]) > 0
    assert clean[2] == "False", "a forecast wakes no GPU"
    assert int(clean[1]) > 0
    assert "asks the GPU's driver here" in found[1] and "`memguard forecast`" in found[1]
