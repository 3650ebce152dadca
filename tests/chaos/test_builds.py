"""Environments in which something is missing: the training goes on, and what can be measured is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import builtins, json, sys, warnings
from pathlib import Path
broken, logdir = sys.argv[1].split(","), Path(sys.argv[2])
real = builtins.__import__


def imported(name, globals=None, locals=None, fromlist=(), level=0):
    if level == 0 and name.partition(".")[0] in broken:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return real(name, globals, locals, fromlist, level)


builtins.__import__ = imported
warnings.simplefilter("ignore")
from tests.chaos.training import train, unguarded
import memguard
from memguard.records.findings import Severity

truth = train(unguarded)
guards = []


def guarding(*args):
    guards.append(memguard.watch(*args, logdir=logdir, log_every=2, device="cpu"))
    return guards[0]


numbers = train(guarding)
same = all((a == b).all() for a, b in zip(numbers, truth, strict=True))
summary = guards[0].summary()
builtins.__import__ = real
print(json.dumps({
    "same": bool(same), "batches": len(guards[0].records), "findings": [f.code for f in guards[0].findings],
    "summary": summary, "loaded": sorted(set(broken) & {name.partition(".")[0] for name in sys.modules}),
}))
"""


def trained_without(broken: str, folder: Path) -> tuple[dict[str, Any], str]:
    """What a training told whose process cannot import some packages, and its stderr."""
    command = [sys.executable, "-c", PROGRAM, broken, str(folder)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.parametrize(
    "broken",
    [
        "numpy",
        "tensorboard",
        "tensorboard,jinja2,pynvml",
        "numpy,tensorboard,jinja2,pynvml,lightning,pytorch_lightning",
    ],
)
def test_a_package_that_cannot_be_imported(broken: str, tmp_path: Path) -> None:
    """The same numbers and all records; at most one line for each part that stops, and no traceback in the loop."""
    told, stderr = trained_without(broken, tmp_path)
    assert told["loaded"] == []
    assert told["same"]
    assert told["batches"] == 12
    assert "MG201" in told["findings"]
    assert "12 batches" in told["summary"]
    assert len(list(tmp_path.rglob("rank*.bin"))) == 1
    failures = [line for line in stderr.splitlines() if line.startswith("memguard") and "failed" in line]
    assert len(failures) == len(set(failures)) <= 3, stderr
    if "numpy" not in broken:  # the other packages are extras: to do without them is no failure
        assert failures == []
        assert "MG201" in stderr
