"""A model on two devices of one process: needs the null GPU with ``--devices 2``, or two GPUs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import memguard
from memguard.recording.reader import Recording, find_recordings
from memguard.report.rank_text import rank_lines
from memguard.report.runs import load_run
from memguard.report.text import render
from memguard.text.units import MIB

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices"),
]


class Halves(nn.Module):
    """The first half on one device, the second on the other."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(1024, 1024).to("cuda:0"), nn.Linear(1024, 4096).to("cuda:1")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).to("cuda:1"))


def test_each_device_has_its_records(tmp_path: Path) -> None:
    """The peaks are those of each device by itself, batch by batch, and the other's allocator is asked for them."""
    model = Halves()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with memguard.watch(model, optimizer, logdir=tmp_path, quiet=True) as guard:
        for _ in range(12):
            optimizer.zero_grad()
            model(torch.ones(64, 1024, device="cuda:0")).sum().backward()
            optimizer.step()
            held = [torch.cuda.memory_allocated(index) for index in range(2)]
        highest = [torch.cuda.max_memory_allocated(index) for index in range(2)]
    (further,) = guard.result().devices
    assert further.device == "cuda:1"
    first, second = (Recording.open(path) for path in sorted(find_recordings(tmp_path), key=lambda path: path.stem))
    assert [each.session["device"] for each in (first, second)] == ["cuda:0", "cuda:1"]
    assert len(first) == len(second) == 12
    assert [row["optimizer_steps"] for row in first.rows] == [row["optimizer_steps"] for row in second.rows]
    assert [each.record(11).allocated_end_bytes for each in (first, second)] == held
    assert held[1] - held[0] > 20 * MIB, "weights and gradients of the second half are four times as large"
    assert [int(each.rows["allocated_peak_bytes"].max()) for each in (first, second)] == highest


def test_the_report_tells_each_device(tmp_path: Path) -> None:
    """In words and as JSON; the ranks stay ranks."""
    model = Halves()
    with memguard.watch(model, logdir=tmp_path, quiet=True):
        for _ in range(3):
            model(torch.ones(64, 1024, device="cuda:0")).sum().backward()
    run = load_run([str(tmp_path)])
    assert list(run.ranks) == [0] and rank_lines(run) == []
    assert "\nOn cuda:1: peak: " in render(run.summary)
    (device,) = json.loads(json.dumps(run.to_json()))["devices"]
    assert device["device"] == "cuda:1" and device["peak"]["allocated_bytes"] > 16 * MIB


def test_a_model_on_one_device_has_one_recording(tmp_path: Path) -> None:
    """Another device that exists is nobody's business."""
    model = nn.Linear(64, 64).cuda()
    with memguard.watch(model, logdir=tmp_path, quiet=True) as guard:
        for _ in range(10):
            model(torch.ones(4, 64, device="cuda")).sum().backward()
    assert len(find_recordings(tmp_path)) == 1 and guard.result().devices == []


def test_running_out_on_the_further_device_is_told_of_that_device(tmp_path: Path) -> None:
    """The report has the failing device's numbers and tensors, not the guarded one's."""
    model = Halves()
    kept = []
    with (
        pytest.raises(torch.OutOfMemoryError),
        memguard.watch(model, device="cuda:0", logdir=tmp_path, quiet=True),
    ):
        model(torch.ones(64, 1024, device="cuda:0")).sum().backward()
        kept.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda:1"))
        kept.append(torch.empty(1 << 50, dtype=torch.uint8, device="cuda:1"))
    (path,) = tmp_path.glob("memguard/oom-rank00000-*/report.json")
    told = json.loads(path.read_text())
    assert told["device"] == "cuda:1"
    assert told["request"]["allocated_bytes"] > 1 << 30
    assert max(tensor["bytes"] for tensor in told["tensors"]) == 1 << 30
