"""Silence is true: no run whose memory rose, or that was full, is called nothing to worry about.

Of the corpus every run is checked where it runs: ``tests/corpus/runner.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.corpus.runner import FOLDER, run_alone

EXAMPLES = sorted((FOLDER.parents[1] / "examples").glob("*.py"))


def test_a_leak_is_not_called_nothing_to_worry_about(tmp_path: Path) -> None:
    """Neither in a program of the corpus, by the records alone."""
    assert run_alone(FOLDER / "faulty/mg301_logits_kept.py", tmp_path).silences == ()


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_no_example_whose_memory_rose_is_called_nothing_to_worry_about(path: Path, tmp_path: Path) -> None:
    """Nor in an example."""
    assert run_alone(path, tmp_path).silences == ()
