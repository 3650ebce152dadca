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


def test_the_cost_of_a_virtual_device_is_not_unsampled_tensors() -> None:
    """The time of memguard's own is told; that a virtual device takes more is said where there is one."""
    took = "memguard took 0.50 s, 10.00% of the run's time"
    on = {name: Summary(device=name, overhead_seconds=0.5, overhead_share=0.1) for name in ("cpu", "virtual:1GiB")}
    assert f"{took}.\n" in render(on["cpu"]) + "\n"
    assert f"{took}; what the virtual device takes is not in it.\n" in render(on["virtual:1GiB"]) + "\n"


@pytest.mark.parametrize(
    ("stages", "says"),
    [
        ({Stage.TRAIN: 5, Stage.OTHER: 3, Stage.CHECKPOINT: 2}, "5 batches"),
        ({Stage.TRAIN: 5, Stage.VALIDATION: 2, Stage.OTHER: 1}, "7 batches"),
        ({Stage.OTHER: 4}, "4 batches"),
    ],
)
def test_batches_are_counted_as_the_program_counts_them(stages: dict[Stage, int], says: str) -> None:
    """What lies between stages and a checkpoint are no batches of the program, unless there is nothing else."""
    summary = Summary(
        device="cpu", ended="finished", stages={name: StageSummary(batches=count) for name, count in stages.items()}
    )
    assert render(summary).splitlines()[0].startswith(f"memguard on cpu: {says}, ")
