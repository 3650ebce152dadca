"""The first line of a run's summary."""

from __future__ import annotations

import pytest

from memguard.report.text import render
from memguard.stats import Stage
from memguard.summary import StageSummary, Summary


@pytest.mark.parametrize(
    ("batches", "ended", "says"),
    [
        (2, "finished", "2 batches, nothing to worry about."),
        (1, "finished", "1 batch, nothing to worry about."),
        (1, "an exception: ValueError", "1 batch, no findings to look at; it ended with an exception: ValueError."),
        (0, None, "0 batches, no findings to look at; the run ended without a word (killed?) or still runs."),
    ],
)
def test_only_a_run_that_finished_is_nothing_to_worry_about(batches: int, ended: str | None, says: str) -> None:
    """A run that failed or vanished has no findings, which is less; one batch is told as one."""
    summary = Summary(device="cpu", stages={Stage.TRAIN: StageSummary(batches=batches)}, ended=ended)
    assert render(summary).splitlines()[0] == f"memguard on cpu: {says}"
