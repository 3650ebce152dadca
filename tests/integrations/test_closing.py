"""What a process says at its end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from memguard.detectors.device_share import RankImbalance
from memguard.facts import RankPeaks
from memguard.integrations.closing import closing_text
from memguard.launch import read_launch
from memguard.report import rank_text, runs
from memguard.stats import Run
from memguard.summary import Summary
from memguard.units import GIB


@pytest.mark.parametrize(("rank", "size", "told"), [(0, 2, ["MG603"]), (0, 1, []), (1, 2, [])])
def test_rank_0_tells_how_the_ranks_compare(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rank: int, size: int, told: list[str]
) -> None:
    """Its summary gets the finding, and the text has it; a rank alone, or another than 0, compares nothing."""
    (finding,) = RankImbalance().learn(
        RankPeaks(batch=7, peaks=((0, 9 * GIB), (1, 20 * GIB))), Run(device="cuda:0", device_total_bytes=24 * GIB)
    )
    monkeypatch.setattr(runs, "load_run", lambda logdirs: SimpleNamespace(worst=SimpleNamespace(finding=finding)))
    monkeypatch.setattr(rank_text, "worst_lines", lambda run: ["2 ranks: from 9 GiB to 20 GiB", "  why: its inputs"])
    summary = Summary(recording=str(tmp_path / "rank00000.bin"))
    text = closing_text(read_launch({"RANK": str(rank), "WORLD_SIZE": str(size)}), summary)
    assert [each.code for each in summary.findings] == told
    assert (text is None) == bool(rank)
    if told:
        assert text is not None and "rank-imbalance" in text and text.endswith("2 ranks: from 9 GiB to 20 GiB")
