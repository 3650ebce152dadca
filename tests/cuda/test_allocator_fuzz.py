"""The simulated allocator against PyTorch's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from memguard.forecast.kernels.workspaces import version_of
from tests.allocator.operations import CONFIGS, MODES

OPERATIONS = int(os.environ.get("MEMGUARD_FUZZ_OPERATIONS", "200000"))
COUNT = 1500
SIMULATED = (2, 15)


@pytest.mark.cuda
def test_simulated_allocator_equals_the_real_one() -> None:
    """Every address, statistic, segment, event and error text is the same, over all configurations and both sizes."""
    if not torch.cuda.is_available() or torch.cuda.get_device_name() != "Null GPU":
        pytest.skip("needs the null GPU")
    if version_of(torch.__version__) < SIMULATED:
        pytest.skip("the simulated allocator is that of torch 2.15: other statistics and settings before")
    seeds = -(-OPERATIONS // (COUNT * 2 * len(CONFIGS) * len(MODES)))
    command = [sys.executable, "-m", "tests.cuda.allocator_fuzz", "--count", str(COUNT), "--seeds", str(seeds)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    totals = json.loads(done.stdout.splitlines()[-1])
    print(totals)
    assert totals["operations"] >= OPERATIONS
    assert totals["ooms"] > 0 and totals["retries"] > 0
