"""The eight causes on CUDA's own allocator, heard from its observer; each is cured by the first advice."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import memguard
from memguard.backends.oom_view import ignore, listen
from memguard.forecast.kernels.workspaces import version_of
from tests.postmortem import scenarios

SCALE = 64
REPLAYED = "fragmentation"
WORKSPACES = 0 if version_of(torch.__version__) >= (2, 15) else 2 * 33 << 20
"""Of cuBLAS and cuBLASLt, one for each thread that multiplies, which torch keeps until 2.14."""
CHILD = """
import sys, torch
from tests.postmortem import scenarios
torch.cuda.init()
torch.cuda.set_per_process_memory_fraction(float(sys.argv[1]))
scenarios.pass_with("fragmentation", None, sys.argv[2], "cuda", int(sys.argv[3]))
"""


def limit(name: str) -> float:
    """Leaves the process what the scenario needs to fail; the share of the device."""
    nbytes = int(scenarios.CAUSES[name][1].removesuffix("MiB")) * SCALE << 20
    share = nbytes / torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(share)
    return share


@pytest.mark.parametrize("name", scenarios.CAUSES)
def test_eight_causes(name: str, tmp_path: Path) -> None:
    """The report names the cause, the owners add up, and the first advice, applied, makes the run fit."""
    torch.cuda.init()
    share = limit(name)
    history = "always" if name == REPLAYED else "auto"
    told = scenarios.fail(name, str(tmp_path), "cuda:0", SCALE, history=history)
    assert told["cause_kind"] == name
    allocated = told["request"]["allocated_bytes"]
    assert abs(sum(told["owners"].values()) - allocated) <= 0.01 * allocated
    assert told["owners"]["other"] <= 0.1 * allocated + WORKSPACES
    assert told["seconds"] > 0
    gc.collect()
    torch.cuda.empty_cache()
    if name != REPLAYED:
        scenarios.pass_with(name, scenarios.fix_of(name, told), str(tmp_path / "fixed"), "cuda:0", SCALE)
        return
    assert [each["fits"] for each in told["replay"]] == [True]
    assert "expandable_segments:True" in told["advice"][0]["text"]
    assert told["lines"][0][0] == scenarios.__file__
    variables = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PYTHONPATH": os.getcwd()}
    command = [sys.executable, "-W", "ignore", "-c", CHILD, str(share), str(tmp_path / "fixed"), str(SCALE)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-800:]


def test_cudnn_that_finds_no_algorithm_because_memory_ran_out(tmp_path: Path) -> None:
    """Its error says nothing of memory; that the allocator refused a workspace just before does."""

    class Net(nn.Linear):
        """Asks for too much where no exception of it comes through, as cuDNN does."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with contextlib.suppress(torch.OutOfMemoryError):
                torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
            raise RuntimeError("GET was unable to find an engine to execute this computation")

    net = Net(4, 4).cuda()
    with (
        pytest.raises(RuntimeError, match="unable to find") as raised,
        memguard.watch(net, device="cuda:0", logdir=tmp_path, quiet=True) as guard,
    ):
        net(torch.zeros(1, 4, device="cuda"))
    told = guard.result().oom
    assert told is not None and told["request"]["requested_bytes"] == 1 << 50 and not told["caught"]
    if hasattr(raised.value, "__notes__"):
        assert "out of memory on cuda:0" in raised.value.__notes__[0]


def test_a_listener_that_fails_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The out-of-memory error comes through as it is, and the failure is logged."""
    torch.cuda.init()

    def fails(*numbers: int) -> None:
        raise ValueError("of the listener")

    assert listen(fails)
    try:
        with pytest.raises(torch.OutOfMemoryError), caplog.at_level(logging.ERROR, "memguard"):
            torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    finally:
        ignore(fails)
    assert "of the listener" in caplog.text
