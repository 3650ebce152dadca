"""What a process says at its end."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from memguard.integrations.last_word import closing_text
from memguard.launch import read_launch
from memguard.recording.reader import Recording
from memguard.records.facts import RankPeaks
from memguard.records.findings import Severity
from memguard.records.stats import Run
from memguard.records.summary import Summary
from memguard.report import rank_text, runs
from memguard.report.runs import load_run
from memguard.report.summaries import summarize
from memguard.rules.device_share import RankImbalance
from memguard.text.units import GIB
from tests.report.many_ranks import make_many


@pytest.mark.parametrize(("rank", "size", "told"), [(0, 2, ["MG603"]), (0, 1, []), (1, 2, [])])
def test_rank_0_tells_how_the_ranks_compare(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rank: int, size: int, told: list[str]
) -> None:
    """Its summary gets the finding, and the text has it; a rank alone, or another than 0, compares nothing."""
    (claim,) = RankImbalance().learn(
        RankPeaks(batch=7, peaks=((0, 9 * GIB), (1, 20 * GIB))), Run(device="cuda:0", device_total_bytes=24 * GIB)
    )
    finding = claim.finding(claim.severity)
    monkeypatch.setattr(
        runs,
        "load_run",
        lambda logdirs: SimpleNamespace(worst=SimpleNamespace(finding=finding), verdicts=[], summary=Summary()),
    )
    monkeypatch.setattr(rank_text, "worst_lines", lambda run: ["2 ranks: from 9 GiB to 20 GiB", "  why: its inputs"])
    summary = Summary(recording=str(tmp_path / "rank00000.bin"))
    text = closing_text(read_launch({"RANK": str(rank), "WORLD_SIZE": str(size)}), summary)
    assert [each.code for each in summary.findings] == told
    assert (text is None) == bool(rank)
    if told:
        assert text is not None and "rank-imbalance" in text and text.endswith("2 ranks: from 9 GiB to 20 GiB")


def _recorded(folder: Path, heavy: int = 1) -> Summary:
    """A run of three ranks, of which one leaks; rank 0's own summary knows nothing of that."""
    make_many(folder, ranks=3, batches=20, heavy=heavy)
    return summarize(Recording.open(load_run([str(folder)]).ranks[0].path))


def test_rank_0_tells_the_worst_of_all_ranks(tmp_path: Path) -> None:
    """A run is not sound because rank 0 is: the verdict and the findings name the rank."""
    summary = _recorded(tmp_path)
    assert summary.findings == []
    text = closing_text(read_launch({"RANK": "0", "WORLD_SIZE": "3"}), summary)
    assert text is not None
    assert "1 warning, the worst on rank 1." in text.splitlines()[0]
    assert "MG101 retained-graph [rank 1]" in text
    assert sorted((each.code, each.rank) for each in summary.findings) == [("MG101", 1), ("MG603", 1)]


def test_the_last_rank_to_end_has_the_last_word(tmp_path: Path) -> None:
    """Another rank than 0 speaks where all others have ended, and names the worst of all."""
    _recorded(tmp_path, heavy=2)
    _end_at(tmp_path, 5.0, 7.0, 6.0)
    summary = summarize(Recording.open(load_run([str(tmp_path)]).ranks[1].path))
    text = closing_text(read_launch({"RANK": "1", "WORLD_SIZE": "3"}), summary)
    assert text is not None and text.startswith("memguard: all 3 ranks have ended. The worst finding is on rank 2: MG")
    assert closing_text(read_launch({"RANK": "1", "WORLD_SIZE": "4"}), summary) is None, "one has not even begun"


@pytest.mark.parametrize(
    ("ends", "last"), [((5.0, 7.0, 6.0), [1]), ((5.0, 6.0, 6.0), [2]), ((6.0, 6.0, 5.0), [1]), ((7.0, 6.0, 5.0), [])]
)
def test_ranks_that_end_together_agree_on_which_is_the_last(
    tmp_path: Path, ends: tuple[float, ...], last: list[int]
) -> None:
    """Each sees that all have ended, and one says so; where rank 0 was the last, its summary says it."""
    _recorded(tmp_path)
    _end_at(tmp_path, *ends)
    told = {}
    for rank, each in load_run([str(tmp_path)]).ranks.items():
        told[rank] = closing_text(
            read_launch({"RANK": str(rank), "WORLD_SIZE": "3"}), summarize(Recording.open(each.path))
        )
    assert [rank for rank in (1, 2) if told[rank] is not None] == last
    assert told[0] is not None


def _end_at(folder: Path, *times: float) -> None:
    """Sets when each rank ended."""
    for rank, each in load_run([str(folder)]).ranks.items():
        path = each.path.with_suffix(".jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines = [{**line, "time": times[rank]} if line["kind"] == "end" else line for line in lines]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("peaks", "severity"),
    [((1, 1, 1, 30), Severity.WARNING), ((6, 6, 6, 30), Severity.WARNING), ((12, 12, 12, 30), Severity.INFO)],
)
def test_a_rank_far_above_the_others_is_a_warning(peaks: tuple[int, ...], severity: Severity) -> None:
    """One that takes most of its peak for itself alone; ranks that merely differ are for information."""
    fact = RankPeaks(batch=7, peaks=tuple((rank, peak * GIB) for rank, peak in enumerate(peaks)))
    (finding,) = RankImbalance().learn(fact, Run(device="cuda:0", device_total_bytes=80 * GIB))
    assert finding.severity is severity
