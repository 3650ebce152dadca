"""Silence is true: no run whose memory rose, or that was full, is called nothing to worry about."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from memguard.recording.reader import Recording
from memguard.records.stats import Stage
from memguard.report.summaries import summarize
from memguard.report.text import render
from tests.corpus.runner import FOLDER, programs, run_alone

EXAMPLES = sorted((FOLDER.parents[1] / "examples").glob("*.py"))
SAMPLE = ("faulty/mg301_logits_kept.py",)
SHARE, WARM = 0.1, 16
CALM = "nothing to worry about"


def violations(path: Path, logdir: Path) -> list[str]:
    """Stages of a program's runs in which memory rose for good though the run was called nothing to worry about."""
    run_alone(path, logdir)
    found = []
    for file in sorted(logdir.rglob("*.bin")):
        recording = Recording.open(file)
        if CALM not in render(summarize(recording)):
            continue
        total = recording.session.get("device_total_bytes")
        end = recording.column("allocated_end_bytes")[recording.stage_mask(Stage.TRAIN)]
        if len(end) <= 2 * WARM or np.isnan(end).any() or not total:
            continue
        begin, last = end[: 2 * WARM].max(), end[-WARM:].min()  # the lowest at the end, the highest of the beginning
        if last - begin > SHARE * total or recording.of_kind("oom"):
            found.append(f"{path.parent.name}/{path.name}: from {begin:.0f} to {last:.0f}")
    return found


@pytest.mark.parametrize("name", SAMPLE)
def test_a_leak_is_not_called_nothing_to_worry_about(name: str, tmp_path: Path) -> None:
    """Neither in a sample of the corpus, by the records alone."""
    assert violations(FOLDER / name, tmp_path) == []


@pytest.mark.slow
def test_no_program_whose_memory_rose_is_called_nothing_to_worry_about(tmp_path: Path) -> None:
    """Nor in the whole corpus and the examples."""
    paths = [*programs(), *EXAMPLES]
    found = [text for number, path in enumerate(paths) for text in violations(path, tmp_path / str(number))]
    assert found == []
