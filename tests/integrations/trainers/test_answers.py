"""What a Trainer's callback answers about its run."""

from __future__ import annotations

import pytest

from memguard.integrations.trainers.answers import Answers
from memguard.records.summary import Summary
from tests.fakes import finding


def test_the_findings_are_those_of_the_run() -> None:
    """None before it; afterwards a list of the caller's own."""
    answers = Answers(quiet=True)
    assert answers.findings == []
    answers._summary = Summary(findings=[finding(line=7)])
    answers.findings.clear()
    assert answers.findings == [finding(line=7)]


def test_a_process_without_a_run_says_where_the_ranks_recordings_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent of a ddp_fork or ddp_spawn fit; it is not told as a run that was killed."""
    answers = Answers(quiet=True)
    told = answers.summary()
    assert "nothing was recorded in this process" in told and "`memguard report DIR`" in told
    assert "killed" not in told and answers.result().notes[0] in told
    monkeypatch.setenv("MEMGUARD_DISABLE", "1")
    assert answers.summary() == "memguard is disabled (MEMGUARD_DISABLE)."
