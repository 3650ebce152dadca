"""The pytest plugin, in a pytest of its own."""

import os
import subprocess
import sys
from pathlib import Path

SUITE = """
import pytest, torch
from torch import nn

def train(batch):
    model = nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(batch, 256)).mean().backward()
        optimizer.step()

@pytest.mark.memguard("64MiB")
def test_marked():
    train(64)

@pytest.mark.memguard("1MiB")
def test_marked_too_large():
    train(4096)

@pytest.mark.memguard("64MiB")
def test_marked_raises():
    raise KeyError("mine")

def test_fixture(memguard_budget):
    for batch in (64, BATCH):
        with memguard_budget(device="virtual:64MiB", baseline=True):
            train(batch)
"""


def run(folder: Path, *arguments: str, batch: int = 64) -> str:
    (folder / "test_memory.py").write_text(SUITE.replace("BATCH", str(batch)))
    (folder / "pytest.ini").write_text("[pytest]\nmemguard_baseline = base.json\n")
    plugin = ["-p", "no:memguard", "-p", "memguard.testing.plugin"]  # whether the installed one is there or not
    command = [sys.executable, "-m", "pytest", *plugin, "-p", "no:cacheprovider", "-q", "--strict-markers", *arguments]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # those of others take seconds to load
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=alone).stdout


def test_marker_and_fixture(tmp_path: Path) -> None:
    """A marked test fails above its budget, its own error stays; the fixture holds the baseline of the ini file."""
    first = run(tmp_path)
    assert "4 failed" not in first
    assert "3 failed, 1 passed" in first
    assert "MemoryBudgetExceeded: test_memory.py::test_marked_too_large: the peak is" in first, first
    assert "KeyError: 'mine'" in first
    assert "base.json has no baseline of this name" in first
    assert "2 failed, 2 passed" in run(tmp_path, "--memguard-update")
    assert (tmp_path / "base.json").exists()
    assert "1 passed" in run(tmp_path, "-k", "fixture")
    assert "test_memory.py::test_fixture#1: the peak is" in run(tmp_path, "-k", "fixture", batch=4096)
    assert "test_fixture#1 uses less memory than its baseline" in run(tmp_path, "-k", "fixture", batch=1)
