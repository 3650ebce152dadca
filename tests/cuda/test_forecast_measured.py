"""``memguard forecast --measure``: real steps on the GPU, and what their replay answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.cuda

PROGRAM = """
import torch
from torch import nn
from torch.nn import functional

def make(batch=16):
    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 256)).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        optimizer.zero_grad()
        x = torch.randn(batch, 64, 256, device="cuda")
        functional.mse_loss(model(x), torch.zeros_like(x)).backward()
        optimizer.step()

    return model, optimizer, step

def on_the_host():
    model = nn.Linear(2, 2)
    return model, None, lambda: model(torch.randn(2, 2)).sum().backward()
"""


def forecast(tmp_path: Path, function: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "train.py").write_text(PROGRAM)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    command = [sys.executable, "-W", "ignore", "-m", "memguard", "forecast", f"train.py:{function}", "--measure"]
    return subprocess.run(
        [*command, *options], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
    )


def answer(tmp_path: Path, *options: str, **environment: str) -> dict[str, Any]:
    done = forecast(tmp_path, "make", "--json", *options, **environment)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_was_measured_is_replayed_to_the_byte(tmp_path: Path) -> None:
    """The real allocator's peaks, and the simulated one's of the same allocations; the owners add up."""
    found = answer(tmp_path, "--batch", "32")
    assert [one["batch"] for one in found["measured"]] == [32, 16]
    for one in found["measured"]:
        assert one["replayed_allocated_peak_bytes"] == one["allocated_peak_bytes"] > 0
        assert one["replayed_reserved_peak_bytes"] == one["reserved_peak_bytes"]
        assert len(one["steps"]) == 3
    assert found["source"] == "replayed"
    assert found["allocated_peak_bytes"] == found["measured"][0]["allocated_peak_bytes"]
    assert [step["allocated_peak_bytes"] for step in found["steps"]] == [
        step["allocated_peak_bytes"] for step in found["measured"][0]["steps"]
    ]
    owners = {share["name"]: share["bytes"] for share in found["owners"]}
    parameters = 4 * (2 * 256 * 1024 + 1024 + 256 + 2 * 1024)
    assert owners["parameters"] == parameters
    assert owners["optimizer states"] == 2 * parameters
    assert owners["activations"] > 0


def test_a_batch_that_is_scaled_has_the_peak_that_is_measured_there(tmp_path: Path) -> None:
    """From 32 and 16, what 128 really takes; and the table says which is which."""
    found = answer(tmp_path, "--batch", "32")
    rows = {row["batch"]: row for row in found["table"]}
    assert {batch: row["source"] for batch, row in rows.items()} == {
        8: "scaled",
        16: "replayed",
        32: "replayed",
        64: "scaled",
        128: "scaled",
    }
    real = answer(tmp_path, "--batch", "128")["measured"][0]
    assert rows[128]["allocated_peak_bytes"] == pytest.approx(real["allocated_peak_bytes"], rel=0.01)
    assert rows[128]["reserved_peak_bytes"] == pytest.approx(real["reserved_peak_bytes"], rel=0.05)
    assert found["largest_batch"] > 128


def test_other_settings_and_cards_are_replayed(tmp_path: Path) -> None:
    """The allocator's settings as a real run with them has it; a smaller card as it judges."""
    conf = "expandable_segments:True"
    found = answer(tmp_path, "--alloc-conf", conf, "--cards", "t4")
    real = answer(tmp_path, PYTORCH_CUDA_ALLOC_CONF=conf)["measured"][0]
    assert found["reserved_peak_bytes"] == real["reserved_peak_bytes"]
    assert [(row["card"], row["verdict"], row["source"]) for row in found["table"]] == [
        ("Tesla T4", "fits", "replayed")
    ]


@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_name() != "Null GPU", reason="needs a small GPU"
)
def test_a_batch_that_runs_out_of_memory_is_told_from_smaller_ones(tmp_path: Path) -> None:
    """64 does not fit for real; 32 and 16 do, and say the same of 64."""
    found = answer(tmp_path, "--batch", "64", NULLGPU_TOTAL="140MiB", NULLGPU_CONTEXT="20MiB")
    assert [(one["batch"], one["out_of_memory"] is None) for one in found["measured"]] == [
        (64, False),
        (32, True),
        (16, True),
    ]
    assert found["source"] == "scaled"
    assert found["verdict"] == "does not fit"
    assert found["context_bytes"] == 20 * 2**20  # as it was, not as cards usually have it


def test_a_function_that_leaves_all_on_the_host_is_told_so(tmp_path: Path) -> None:
    """Nothing is moved for it: it runs as it is."""
    done = forecast(tmp_path, "on_the_host")
    assert done.returncode != 0
    assert "has put nothing on the GPU" in done.stderr
