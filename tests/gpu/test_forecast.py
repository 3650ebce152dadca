"""The forecast beside what the card then measures; in processes of its own, for it needs one without a backward."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from memguard.recording.reader import Recording, find_recordings
from tests.gpu.card import IS_REAL
from tests.gpu.programs import training

ROOT = Path(__file__).parents[2]
NEAR = 0.02
"""How near a transformer's forecast must be; what cuDNN chooses for convolutions only a range tells."""


def run(*command: str) -> str:
    """What a program prints; it must end well."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@functools.cache
def forecast_and_truth(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(training.__file__, name).splitlines()[-1])
    return found


def check(name: str, forecast: dict[str, Any], allocated: int) -> None:
    """A transformer's peak is near, one of convolutions in the range."""
    low, high = forecast["allocated_peak_bytes_range"]
    assert low * (1 - NEAR) <= allocated <= high * (1 + NEAR), (allocated, forecast["allocated_peak_bytes_range"])
    if name == "gpt" or not IS_REAL:
        assert forecast["allocated_peak_bytes"] == pytest.approx(allocated, rel=NEAR)


@pytest.mark.parametrize("name", training.BUILDS)
def test_a_step_is_forecast_beside_its_model_on_the_gpu(name: str) -> None:
    """Before the first backward of the process; it takes no memory, and the truth is near."""
    found = forecast_and_truth(name)
    assert found["taken"] == 0
    assert found["forecast"]["verdict"] == "fits"
    check(name, found["forecast"], max(found["peaks"]))
    low, high = found["forecast"]["reserved_peak_bytes_range"]
    assert low * 0.95 <= found["reserved"] <= high * 1.05, (found["reserved"], low, high)


@pytest.mark.parametrize("name", training.BUILDS)
def test_lightning_puts_the_truth_beside_the_forecast(name: str, tmp_path: Path) -> None:
    """With a Trainer in bf16-mixed on the GPU."""
    pytest.importorskip("lightning")
    run(str(Path(training.__file__).with_name("lightning_fit.py")), name, str(tmp_path))
    recording = Recording.open(find_recordings(tmp_path)[0])
    (told,), (measured,) = recording.of_kind("forecast"), recording.of_kind("forecast_measured")
    assert told["verdict"] == "fits"
    check(name, told, measured["allocated_peak_bytes"])


@pytest.mark.parametrize("device", ["nvidia-h100", None])
def test_the_command_says_the_same(device: str | None) -> None:
    """Where a GPU is there as well, which it leaves alone: for a named card, and for the one of this machine."""
    if device and "H100" not in torch.cuda.get_device_name():
        pytest.skip("the card is not an H100")
    options = ["--device", device] if device else []
    told = json.loads(run("-m", "memguard", "forecast", f"{training.__file__}:build_gpt", *options, "--json"))
    check("gpt", told, max(forecast_and_truth("gpt")["peaks"]))
