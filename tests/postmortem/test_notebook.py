"""In a notebook: the error of a cell is explained under its traceback, though sys.excepthook is never asked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("IPython")

NOTEBOOK = '''
import gc
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance(colors="NoColor")
shell.run_cell("""
import memguard, torch
from torch import nn
model = memguard.wrap(nn.Linear(8, 8), device="virtual:16MiB", logdir={logdir!r}, quiet=True)
""")
shell.run_cell("""
import weakref
refs = []
def step():
    kept = torch.zeros(1 << 20, dtype=torch.uint8)
    refs.append(weakref.ref(kept))
    model(torch.ones(2, 8))
    return torch.zeros(64 << 20, dtype=torch.uint8)
try:
    step()
except torch.OutOfMemoryError:
    print("caught by the cell")
""")
shell.run_cell("step()")
gc.collect()
print("kept by the notebook:", shell.user_ns["refs"][-1]() is not None)
shell.run_cell("1/0")
gc.collect()
print("kept after another error:", shell.user_ns["refs"][-1]() is not None)
print("listens:", len(shell.events.callbacks["post_run_cell"]))
shell.run_cell("memguard.unwrap(model)")
print("listens after unwrap:", len(shell.events.callbacks["post_run_cell"]))
'''


def test_an_error_of_a_cell_is_explained_below_it(tmp_path: Path) -> None:
    """Once, for the one that the cell did not catch; what the notebook keeps is said, and so is how it is freed."""
    program = tmp_path / "notebook.py"
    program.write_text(NOTEBOOK.replace("{logdir!r}", repr(str(tmp_path / "logs"))))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program)],
        env={**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("caught by the cell") == 1
    assert done.stderr.count("memguard: out of memory") == 1
    assert "run a cell that fails for nothing (1/0)" in done.stderr
    assert "kept by the notebook: True" in done.stdout
    assert "kept after another error: False" in done.stdout, "else the advice would be wrong"
    listening, after = (int(line.rpartition(" ")[2]) for line in done.stdout.splitlines() if "listens" in line)
    assert listening == after + 1
    assert len(list((tmp_path / "logs").rglob("report.md"))) == 1
