"""Programs with faults that only a CUDA device shows, run as under `memguard run`, which finds the device by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from memguard.records.findings import Severity
from tests.corpus.runner import FOLDER, exit_code_of, marks_of, run_alone

PROGRAMS = sorted((FOLDER / "cuda").glob("*.py"))

pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_is_told_as_marked(program: Path, tmp_path: Path) -> None:
    """The rule at its line and with its holder; of a healthy one, nothing of warning or worse."""
    if "mg602" in program.name and torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    outcome = run_alone(program, tmp_path, device="auto")
    assert outcome.exit_code == exit_code_of(program, None), outcome.output
    told = [(finding.code, finding.line, finding.holder) for finding in outcome.findings]
    for mark in marks_of(program):
        assert outcome.right_line(mark) and outcome.right_holder(mark), told
    if not marks_of(program):
        assert [finding for finding in outcome.findings if finding.severity is not Severity.INFO] == [], told
