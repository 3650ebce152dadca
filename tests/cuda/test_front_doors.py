"""The front doors on the real allocator: peaks that are everybody's own, and validation that builds no graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import memguard
from memguard.records.stats import Stage

pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore")]

WIDTH = 2048


def model() -> nn.Sequential:
    return nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]).cuda()


def sizes() -> Iterator[int]:
    yield from (64, 512, 128, 1024, 64, 2048, 256)


def step(net: nn.Module, optimizer: torch.optim.Optimizer, size: int) -> None:
    optimizer.zero_grad()
    functional.mse_loss(net(torch.ones(size, WIDTH, device="cuda")), torch.zeros(size, WIDTH, device="cuda")).backward()
    optimizer.step()


def peaks_by_hand() -> list[int]:
    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    found = []
    for size in sizes():
        torch.cuda.reset_peak_memory_stats()
        step(net, optimizer, size)
        found.append(torch.cuda.max_memory_allocated())
    return found


def peaks_by_us(folder: Path) -> list[int | None]:
    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    with memguard.watch(net, optimizer, logdir=folder, quiet=True) as guard:
        for size in sizes():
            step(net, optimizer, size)
    return [record.allocated_peak_bytes for record in guard.records]


def test_the_peak_of_every_batch_is_that_of_a_twin_that_resets_by_hand(
    fresh: Callable[[], None], tmp_path: Path
) -> None:
    """To the byte, for batches of changing size."""
    expected = peaks_by_hand()
    fresh()
    assert peaks_by_us(tmp_path) == expected


def readings(guarding: Callable[..., Any]) -> list[Any]:
    """What a user reads during and after a training, with a reset of their own in the middle."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    seen: list[Any] = []
    with guarding(net, optimizer):
        for number, size in enumerate(sizes()):
            step(net, optimizer, size)
            if number == 3:
                torch.cuda.reset_peak_memory_stats()
            seen += [torch.cuda.max_memory_allocated(), torch.cuda.memory_stats()["active_bytes.all.peak"]]
    seen += [torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), torch.cuda.memory_stats()]
    return seen


def test_other_readers_of_the_peaks_get_what_they_would_have_got(fresh: Callable[[], None], tmp_path: Path) -> None:
    """The user's own readings equal those of the run without memguard."""
    import contextlib

    readings(lambda *args: contextlib.nullcontext())  # a process's first one has the libraries' workspaces to allocate
    fresh()
    expected = readings(lambda *args: contextlib.nullcontext())
    fresh()
    assert readings(lambda *args: memguard.watch(*args, logdir=tmp_path, quiet=True)) == expected


def evaluation_peaks(net: nn.Module, count: int, *, no_grad: bool) -> list[int]:
    found = []
    for _ in range(count):
        torch.cuda.reset_peak_memory_stats()
        with torch.set_grad_enabled(not no_grad):
            functional.mse_loss(net(torch.ones(512, WIDTH, device="cuda")), torch.zeros(512, WIDTH, device="cuda"))
        found.append(torch.cuda.max_memory_allocated())
    return found


@pytest.mark.parametrize("trained", [False, True])
def test_an_evaluation_that_forgot_no_grad_needs_no_more_than_one_that_did_not(
    trained: bool, fresh: Callable[[], None], tmp_path: Path
) -> None:
    """From its second batch on; from its first, if training came before."""

    def run(no_grad: bool) -> list[int]:
        net = model()
        optimizer = torch.optim.AdamW(net.parameters())
        with memguard.watch(net, optimizer, logdir=tmp_path, quiet=True, rules=["MG201"]):
            if trained:
                step(net, optimizer, 64)
                optimizer.zero_grad()
            net.eval()
            return evaluation_peaks(net, 4, no_grad=no_grad)

    expected = run(no_grad=True)
    fresh()
    forgot = run(no_grad=False)
    assert forgot[1:] == expected[1:]
    assert (forgot[0] == expected[0]) is trained


def test_the_cache_is_emptied_by_policy_and_the_act_is_told(fresh: Callable[[], None], tmp_path: Path) -> None:
    """Each act is a finding with the bytes that went back to the driver."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with memguard.watch(net, optimizer, logdir=tmp_path, quiet=True, empty_cache="validation") as guard:
        step(net, optimizer, 2048)
        reserved = torch.cuda.memory_reserved()
        net.eval()
        net(torch.ones(1, WIDTH, device="cuda"))
        assert torch.cuda.memory_reserved() < reserved
    acts = [finding for finding in guard.findings if finding.code == "MG002"]
    assert acts and acts[0].bytes is not None and acts[0].bytes > 0
    assert [record.stage for record in guard.records if record.stage is not Stage.OTHER] == [
        Stage.TRAIN,
        Stage.VALIDATION,
    ]


def test_nothing_of_ours_initialises_cuda(tmp_path: Path) -> None:
    """A CPU training on a machine with a GPU never touches it."""
    import subprocess
    import sys

    code = (
        "import sys, torch, memguard\n"
        "net = torch.nn.Linear(4, 4); optimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "with memguard.watch(net, optimizer, logdir=sys.argv[1]) as guard:\n"
        "    for _ in range(80):\n"
        "        net(torch.ones(2, 4)).sum().backward(); optimizer.step()\n"
        "    net.eval(); net(torch.ones(2, 4))\n"
        "assert len(guard.records) == 81\n"
        "assert not torch.cuda.is_initialized()\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
