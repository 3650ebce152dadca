from pathlib import Path

import pytest

from tests.corpus.runner import FAULTY, HEALTHY, run

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("device", [None, pytest.param("cpu", marks=pytest.mark.slow)], ids=["virtual", "cpu"])
@pytest.mark.parametrize("path", FAULTY, ids=lambda path: path.stem)
def test_every_planted_fault_is_found_at_its_line(path: Path, device: str | None, tmp_path: Path) -> None:
    """Code, line and holder as marked, and nothing else of warning or worse; also without an allocator's numbers."""
    outcome = run(path, tmp_path, device=device)
    assert outcome.marks or device
    told = [(finding.code, finding.line, finding.holder) for finding in outcome.findings]
    for mark in outcome.marks:
        assert outcome.right_line(mark) and outcome.right_holder(mark), f"wanted {mark}, told {told}"
    assert outcome.alarms == []


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_a_healthy_program_raises_no_alarm(path: Path, tmp_path: Path) -> None:
    """It ends well, and nothing of warning or worse is said of it."""
    outcome = run(path, tmp_path)
    assert outcome.exit_code == 0, outcome.output
    assert outcome.alarms == []
