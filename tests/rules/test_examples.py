"""Each rule's example is true: the program before is reported, at a line that changes; the program after is not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from memguard.rules import ALL_RULES
from tests.corpus.forked import run_forked
from tests.corpus.runner import Outcome
from tests.rules.example_programs import Example, example_of

CODES = [rule.code for rule in ALL_RULES]
NEEDS = {
    code: found[1] for code in CODES if (found := re.search(r"^ # needs: (.*)$", example_of(code).difference, re.M))
}
"""Examples that a machine without a GPU cannot run; tests/cuda/test_examples.py has those of the null GPU."""
QUICK = {"MG101", "MG201", "MG701"}
"""Rules whose examples `make test` runs; `make test-long` has all."""
OF_THE_DEVICE = {"MG401", "MG402", "MG502", "MG503", "MG504", "MG309", "MG102"}
"""Rules that name where a step is taken or a call is made, which need not be the line to change."""


def run_version(example: Example, version: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """What memguard reports of the program before or after."""
    monkeypatch.chdir(folder)
    path = folder / f"{version}.py"
    path.write_text(example.before if version == "before" else example.after)
    outcome = run_forked(path)
    assert isinstance(outcome, Outcome), outcome
    return outcome


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "code",
    [code if code in QUICK else pytest.param(code, marks=pytest.mark.long) for code in CODES if code not in NEEDS],
)
def test_the_rule_reports_the_program_before_and_not_the_one_after(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its finding is there before, at one of the lines that change, and gone after; nothing else of weight is left."""
    example = example_of(code)
    before = run_version(example, "before", tmp_path, monkeypatch)
    found = [finding for finding in before.findings if finding.code == code]
    assert found, [(finding.code, finding.message) for finding in before.findings]
    if example.changed_lines and code not in OF_THE_DEVICE:  # else the cure is a line more
        assert {finding.line for finding in found} & set(example.changed_lines), found
    after = run_version(example, "after", tmp_path, monkeypatch)
    assert after.exit_code == 0, after.output
    left = [finding for finding in after.findings if finding.code == code or finding.severity.value != "info"]
    assert left == []


@pytest.mark.long
def test_the_rule_of_ranks_reports_the_program_before_and_not_the_one_after(tmp_path: Path) -> None:
    """Two processes, each a rank as torchrun would start it; the report compares what they recorded."""
    example = example_of("MG603")
    reported = []
    for name, program in (("before", example.before), ("after", example.after)):
        path, runs = tmp_path / f"{name}.py", tmp_path / name
        path.write_text(program)
        command = [
            sys.executable,
            "-m",
            "memguard",
            "run",
            "--device",
            "virtual:64MiB",
            "--logdir",
            str(runs),
            str(path),
        ]
        ranks = [
            subprocess.Popen(
                command,
                env={
                    **os.environ,
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": "2",
                    "OMP_NUM_THREADS": "1",
                },
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for rank in range(2)
        ]
        assert [rank.wait() for rank in ranks] == [0, 0]
        told = subprocess.run(
            [sys.executable, "-m", "memguard", "report", "--json", str(runs)],
            capture_output=True,
            text=True,
            check=True,
        )
        reported.append("MG603" in {finding["code"] for finding in json.loads(told.stdout)["findings"]})
    assert reported == [True, False]


@pytest.mark.parametrize("code", CODES)
def test_an_example_is_a_short_program_that_changes(code: str) -> None:
    """Both versions compile, differ, and fit on a screen."""
    example = example_of(code)
    assert example.before != example.after
    assert len(example.difference.splitlines()) <= 32
    for program in (example.before, example.after):
        compile(program, f"{code}.py", "exec")


def test_every_example_belongs_to_a_rule() -> None:
    """One whose rule is gone would stay unread."""
    text = (Path(__file__).parents[2] / "memguard" / "rules" / "examples.md").read_text()
    assert re.findall(r"^## (MG\d+)$", text, re.M) == CODES
