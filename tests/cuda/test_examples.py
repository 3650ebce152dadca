"""The examples of rules that only a CUDA device shows: reported before, not reported after."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.corpus.runner import run_alone
from tests.rules.example_programs import example_of

pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("code", ["MG602", "MG703"])
def test_the_rule_reports_the_program_before_and_not_the_one_after(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its finding is there before, and gone after."""
    if code == "MG602" and torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    if code == "MG602":
        monkeypatch.setenv("LOCAL_RANK", "1")
    example = example_of(code)
    reported = []
    for name, program in (("before", example.before), ("after", example.after)):
        path = tmp_path / f"{name}.py"
        path.write_text(program)
        outcome = run_alone(path, tmp_path / name, device="auto")
        assert outcome.exit_code == 0, outcome.output
        reported.append(code in {finding.code for finding in outcome.findings})
    assert reported == [True, False]
