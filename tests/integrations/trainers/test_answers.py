"""What a Trainer's callback answers about its run."""

from __future__ import annotations

from memguard.integrations.trainers.answers import Answers
from memguard.summary import Summary
from tests.fakes import finding


def test_the_findings_are_those_of_the_run() -> None:
    """None before it; afterwards a list of the caller's own."""
    answers = Answers(quiet=True)
    assert answers.findings == []
    answers._summary = Summary(findings=[finding(line=7)])
    answers.findings.clear()
    assert answers.findings == [finding(line=7)]
