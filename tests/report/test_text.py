"""The first line of a run's summary."""

from __future__ import annotations

import pytest

from memguard.report.text import render
from memguard.stats import Stage
from memguard.summary import StageSummary, Summary


@pytest.mark.parametrize(
    ("batches", "ended", "misses", "says"),
    [
        (2, "finished", False, "2 batches, nothing to worry about."),
        (1, "finished", False, "1 batch, nothing to worry about."),
        (1, "an exception: OSError", False, "1 batch, no findings to look at; it ended with an exception: OSError."),
        (0, None, False, "0 batches, nothing was recorded; the run ended without a word (killed?) or still runs."),
        (0, "finished", False, "0 batches, nothing was recorded."),
        (3, "finished", True, "3 batches, no findings to look at."),
    ],
)
def test_only_a_run_that_finished_is_nothing_to_worry_about(
    batches: int, ended: str | None, misses: bool, says: str
) -> None:
    """A run that failed, vanished or trained unseen has no findings, which is less; one batch is told as one."""
    stages = {Stage.TRAIN: StageSummary(batches=batches)}
    summary = Summary(device="cpu", stages=stages, ended=ended, misses_training=misses)
    assert render(summary).splitlines()[0] == f"memguard on cpu: {says}"
