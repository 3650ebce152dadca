"""The memory of our own examples, as users test theirs: against `memory-baseline.json`, which is committed.

After a change that is meant: `memguard check examples/plain_charlm.py:make --budget 64MiB --write-baseline
memory-baseline.json`, and `pytest examples/tests --memguard-update`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from memguard.cli import main

ROOT = Path(__file__).parents[1]
BASELINE = ROOT / "memory-baseline.json"
TARGET = f"{ROOT}/examples/plain_charlm.py:make"


@pytest.mark.long
def test_a_step_of_the_plain_example_is_what_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    """To the byte, within its budget, and nothing is kept from step to step."""
    assert main(["check", TARGET, "--budget", "64MiB", "--baseline", str(BASELINE)]) == 0
    assert "passed" in capsys.readouterr().out


def test_a_baseline_has_the_same_bytes_wherever_it_is_written(tmp_path: Path) -> None:
    """Written anew, from another directory, it is the committed entry."""
    (tmp_path / "examples").mkdir()
    copy = tmp_path / "examples" / "plain_charlm.py"
    copy.write_text(Path(TARGET.rpartition(":")[0]).read_text())
    again = tmp_path / "memory-baseline.json"
    assert main(["check", f"{copy}:make", "--budget", "64MiB", "--write-baseline", str(again)]) == 0
    name = "examples/plain_charlm.py:make"
    committed = json.loads(BASELINE.read_text())["baselines"]
    assert json.loads(again.read_text())["baselines"] == {name: committed[name]}


@pytest.mark.long
def test_the_tests_of_the_examples_pass() -> None:
    """A marker and a fixture of the pytest plugin, in a pytest of their own, with the plugin of this checkout."""
    pytest.importorskip("sklearn")
    pytest.importorskip("lightning")
    plugin = ["-p", "no:memguard", "-p", "memguard.testing.plugin"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        *plugin,
        "-p",
        "no:cacheprovider",
        "-q",
        "-W",
        "ignore",
        "examples/tests",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout, done.stdout[-3000:]
