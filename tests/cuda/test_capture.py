"""CUDA graphs captured under a guard: nothing of memguard's may end up in a graph, or break its capture."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import memguard
from memguard.records.stats import Stage

pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore")]

WIDTH, WARM_UP, REPLAYS = 512, 3, 40


def training(guarding: Callable[..., Any]) -> tuple[dict[str, Any], Any]:
    """PyTorch's own recipe: some steps on another stream, one captured, then replays; what the allocator says after."""
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.1), nn.ReLU(), nn.Linear(WIDTH, 8)).cuda()
    optimizer = torch.optim.AdamW(net.parameters(), capturable=True)
    x, y = torch.ones(64, WIDTH, device="cuda"), torch.zeros(64, 8, device="cuda")

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        functional.mse_loss(net(x), y).backward()
        optimizer.step()

    with guarding(net, optimizer) as guard:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        for _ in range(REPLAYS):
            graph.replay()
        for _ in range(3):  # and without the graph
            step()
        net.eval()
        for _ in range(3):
            net(x)
    stats = torch.cuda.memory_stats()
    del graph
    return {key: stats[key] for key in stats if key.startswith(("allocated_bytes.all", "reserved_bytes.all"))}, guard


def test_a_captured_step_is_the_same_under_a_guard(
    fresh: Callable[[], None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The capture goes through, replays run, and allocated memory ends where it would; no part of memguard's fails."""
    expected, _ = training(lambda *args: contextlib.nullcontext())
    fresh()
    found, guard = training(lambda *args: memguard.watch(*args, logdir=tmp_path, quiet=True, validation="off"))
    assert found["allocated_bytes.all.current"] == expected["allocated_bytes.all.current"]
    assert found["allocated_bytes.all.peak"] <= expected["allocated_bytes.all.peak"]  # peaks are reset for each batch
    assert [record for record in caplog.records if record.name == "memguard"] == []
    assert sum(record.stage is Stage.TRAIN for record in guard.records) >= WARM_UP + 3


def test_validation_guarded_and_captured(fresh: Callable[[], None], tmp_path: Path) -> None:
    """A forward in eval mode that runs under the guard's no_grad can be captured too."""
    net = nn.Linear(WIDTH, WIDTH).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.ones(64, WIDTH, device="cuda")
    with memguard.watch(net, optimizer, logdir=tmp_path, quiet=True):
        net(x).sum().backward()
        optimizer.step()
        net.eval()
        for _ in range(3):
            net(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            output = net(x)
        graph.replay()
        assert not output.requires_grad
    assert torch.is_grad_enabled()


def test_graphed_callables_of_a_guarded_model(fresh: Callable[[], None], tmp_path: Path) -> None:
    """`torch.cuda.make_graphed_callables` of a part of the model, made inside the guard."""
    stem, head = nn.Linear(WIDTH, WIDTH).cuda(), nn.Linear(WIDTH, 4).cuda()
    net = nn.Sequential(stem, head)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.ones(16, WIDTH, device="cuda")
    with memguard.watch(net, optimizer, logdir=tmp_path, quiet=True) as guard:
        net[1] = torch.cuda.make_graphed_callables(head, (torch.ones(16, WIDTH, device="cuda", requires_grad=True),))
        for _ in range(5):
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()
    assert len(guard.records) >= 5


@pytest.mark.parametrize("way", ["moved", "replaced"])
def test_a_model_that_changes_its_place_between_batches(way: str, fresh: Callable[[], None], tmp_path: Path) -> None:
    """To the host and back, or with its layers replaced by others on the device."""
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with memguard.watch(net, optimizer, logdir=tmp_path, quiet=True) as guard:
        for batch in range(6):
            if batch == 2:
                net.cpu() if way == "moved" else net.__setitem__(0, nn.Linear(WIDTH, WIDTH).cuda())
            elif batch == 4:
                net.cuda()
            optimizer.zero_grad()
            net(torch.ones(8, WIDTH, device=net[0].weight.device)).sum().backward()
            optimizer.step()
    assert len(guard.records) >= 6
    assert guard.records[0].allocated_peak_bytes
