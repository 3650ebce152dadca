"""Programs of public reports that lie beside the repository: what memguard says of each holds on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.corpus.runner import run_alone

REPORTS = Path(__file__).parents[3] / "shared" / "reports" / "run"

pytestmark = [pytest.mark.long, pytest.mark.skipif(not REPORTS.is_dir(), reason="the reports are not here")]


@pytest.mark.parametrize(
    ("name", "device", "code", "line"),
    [
        ("f05_peft_cv", "virtual:512MiB", "MG308", 38),
        ("f07_vqa_meter", "virtual:512MiB", "MG101", 17),
        ("f10_hp_search", "virtual:512MiB", "MG305", 38),
        ("f11_dp_engine", "virtual:256MiB", "MG301", 12),
        ("f12_lidar_infos", "cpu", "MG702", 25),
        ("f14_play_legged", "virtual:2GiB", "MG102", 46),
        ("f17_recover", "virtual:512MiB", "MG307", 47),
        ("f21_fed_clients", "virtual:768MiB", "MG308", 53),
        ("v03b", "virtual:1GiB", "MG101", 41),
        ("v19b", "virtual:1GiB", "MG301", 51),
    ],
)
def test_a_reported_fault_is_named_with_its_line(name: str, device: str, code: str, line: int, tmp_path: Path) -> None:
    """The finding that the report's README calls right comes."""
    outcome = run_alone(REPORTS / f"{name}.py", tmp_path, device=device)
    assert (code, line) in [(finding.code, finding.line) for finding in outcome.findings]


@pytest.mark.parametrize(("name", "device"), [("h05_sorted_lengths", "virtual:512MiB"), ("lazy_min", "virtual:256MiB")])
def test_a_healthy_program_of_a_report_gets_no_word(name: str, device: str, tmp_path: Path) -> None:
    """No warning and no remark."""
    outcome = run_alone(REPORTS / f"{name}.py", tmp_path, device=device)
    assert not outcome.findings
