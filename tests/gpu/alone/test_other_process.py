"""MG601 with a second process that really takes its share of the card, and what the driver says of both."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

import memguard
from memguard.clocks import perf_counter
from memguard.integrations.guard import Guard
from memguard.records.stats import SlowStats
from memguard.text.units import GIB
from tests.gpu.card import IS_REAL, block, total_bytes

SHARE, CONTEXT_BYTES = 0.2, 2 * GIB
"""Of the card that the other process takes; what a context and loaded kernels stay below."""
NEAR = 0.02
READINGS, MOST_SECONDS = 3, 30
CHILD = """
import sys, torch
held = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def other_process(nbytes: int) -> Iterator[int]:
    """A process that holds so much of the card until it is let go; its number."""
    command = [sys.executable, "-W", "ignore", "-c", CHILD, str(nbytes)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdin is not None
        try:
            assert child.stdout.readline() == "ready\n"
            yield child.pid
        finally:
            child.stdin.close()


def train(logdir: Path) -> tuple[Guard, SlowStats, int]:
    """A training until the driver was asked some times; the guard, the newest answer, and what the runtime tells."""
    net = nn.Linear(64, 64).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    own, slow, answers, until = block(GIB), SlowStats(), 0, perf_counter() + MOST_SECONDS
    with memguard.watch(net, optimizer, device="cuda:0", logdir=logdir, quiet=True) as guard:
        for _ in guard.batches(itertools.count()):
            net(torch.ones(64, 64, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            before, slow = slow, guard.session.recorder.run.slow
            answers += slow is not before
            if answers > READINGS or perf_counter() > until:
                break
        free, total = torch.cuda.mem_get_info()
    del own
    return guard, slow, total - free


def check(slow: SlowStats, used: int, *, others: dict[int, int]) -> None:
    """The driver's numbers: the total is right, and what is said of processes is right or unknown."""
    assert slow.device_used_bytes == pytest.approx(used, abs=NEAR * total_bytes())
    if slow.process_used_bytes is None:
        return  # a container hides processes
    reserved = torch.cuda.memory_reserved()
    assert reserved <= slow.process_used_bytes <= reserved + CONTEXT_BYTES
    told = dict(slow.other_processes or ())
    assert os.getpid() not in told
    for pid, nbytes in others.items():
        assert nbytes <= (told[pid] or 0) <= nbytes + CONTEXT_BYTES


@pytest.mark.skipif(not IS_REAL and "NULLGPU_OTHER" not in os.environ, reason="the null GPU needs NULLGPU_OTHER=16G")
def test_what_another_process_takes_is_told(tmp_path: Path) -> None:
    """With its bytes, and its number where the driver tells it."""
    nbytes = int(SHARE * total_bytes())
    with other_process(nbytes) as pid:
        guard, slow, used = train(tmp_path)
        if IS_REAL:
            check(slow, used, others={pid: nbytes})
    (found, *_) = [finding for finding in guard.findings if finding.code == "MG601"] or [None]
    assert found is not None, (guard.findings, slow)
    assert found.bytes is not None and found.bytes >= (1 - NEAR) * nbytes
    if IS_REAL:
        assert found.bytes <= nbytes + 2 * CONTEXT_BYTES
        assert not slow.other_processes or str(pid) in found.message


@pytest.mark.skipif("NULLGPU_OTHER" in os.environ, reason="the null GPU has another process")
def test_alone_on_the_card_nobody_is_accused(tmp_path: Path) -> None:
    """This process's own context and libraries are not taken for another's."""
    guard, slow, used = train(tmp_path)
    assert [finding for finding in guard.findings if finding.code == "MG601"] == []
    check(slow, used, others={})
