from pathlib import Path

import pytest

from memguard.probes.pace import Pace
from tests.corpus.runner import Outcome, exit_code_of, faulty, healthy, run, run_alone, spending

pytestmark = pytest.mark.filterwarnings("ignore")


def _on_both(paths: list[Path]) -> list[object]:
    """Each program on both devices, or where that is slow on one; of the many retold ones a sixth."""
    cases: list[object] = []
    for number, path in enumerate(paths):
        for device in (None, "cpu"):
            slow = device is not None
            if path.parent.name == "retold":
                slow = number % 12 != (device is not None)
            slow = slow or path.parent.name == "retold_again"
            marks = [pytest.mark.slow] if slow else []
            cases.append(pytest.param(path, device, marks=marks, id=f"{path.stem}-{device or 'virtual'}"))
    return cases


def _outcome(path: Path, folder: Path, device: str | None) -> Outcome:
    """Of a program run in here; where that is not as marked, of one in a process of its own, which is what counts."""
    outcome = run(path, folder / "here", device=device)
    return outcome if not outcome.complaints else run_alone(path, folder / "alone", device=device)


@pytest.mark.parametrize(("path", "device"), _on_both(faulty()))
def test_every_planted_fault_is_found_at_its_line(path: Path, device: str | None, tmp_path: Path) -> None:
    """Code, line and holder as marked, in time, and nothing else of warning or worse; also without an allocator."""
    outcome = _outcome(path, tmp_path, device)
    assert outcome.marks or device
    assert outcome.exit_code == exit_code_of(path, device), outcome.output
    assert outcome.complaints == []


@pytest.mark.parametrize(("path", "device"), _on_both(healthy()))
def test_a_healthy_program_raises_no_alarm(path: Path, device: str | None, tmp_path: Path) -> None:
    """It ends well, and nothing of warning or worse is said of it."""
    outcome = _outcome(path, tmp_path, device)
    assert outcome.exit_code == 0, outcome.output
    assert outcome.complaints == []


@pytest.mark.parametrize("times", [4, 40])
def test_a_late_fault_is_found_where_looks_are_rare(
    times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list that has hundreds before a few of its batches were looked at is named, and nothing else is told."""
    monkeypatch.setattr(Pace, "spend", spending(times))
    path = next(path for path in faulty() if path.stem == "mg101_begins_late")
    assert run(path, tmp_path).complaints == []
