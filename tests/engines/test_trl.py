"""TRL's trainers: their methods are phases, with the peaks of brackets placed by hand."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = str(Path(__file__).with_name("trl_program.py"))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("grpo", {"experience", "experience > rollout", "experience > rewards", "loss", "backward"}),
        ("dpo", {"loss", "backward"}),
    ],
)
def test_phases_of_a_trainer(tmp_path: Path, kind: str, expected: set[str]) -> None:
    """Each method that TRL names has a row, whose peak is that of its calls."""
    if importlib.util.find_spec("trl") is None:
        pytest.skip("trl is not installed: make test-engines brings it")
    done = subprocess.run(
        [sys.executable, PROGRAM, str(tmp_path), kind],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.getcwd(), "HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout[done.stdout.index('{"read"') :])
    assert told["read"].keys() == expected
    assert {name: told["phases"][name] for name in expected} == told["read"]
