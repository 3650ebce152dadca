"""What is said of memory that Python itself keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memguard.records.facts import NOWHERE, FreedByCollector, FunctionContextHolds, Place
from memguard.records.findings import Severity
from memguard.rules.cycles_and_exceptions import ReferenceCycle
from tests.rules.evidence import AT, MIB, judge


@pytest.mark.parametrize(("enabled", "severity"), [(True, Severity.WARNING), (False, Severity.CRITICAL)])
def test_circles_found_together_are_told_at_once(enabled: bool, severity: Severity) -> None:
    """With their number and size; without the collector they pile up for good."""
    fact = FreedByCollector(
        **AT, graphs=0, circles=12, bytes=3 * MIB, cycle="Node.parent <- Node", collector_enabled=enabled
    )
    (finding,) = judge(ReferenceCycle(), fact)
    assert finding.severity is severity and finding.bytes == 3 * MIB
    freed = "were freed" if enabled else "can be freed"
    assert finding.message.startswith(f"12 circles of references with 3.00 MiB {freed} by the garbage collector only")
    assert ("is switched off" in finding.message) is not enabled


def test_circles_through_the_same_classes_are_one_cause_whatever_the_line() -> None:
    """Each look may come upon another of the references; a circle through other classes is another cause."""
    place = Place(file="/train.py", line=7, holder="Node.parent")
    first = FreedByCollector(
        **{**AT, "place": place},
        graphs=0,
        circles=12,
        bytes=3 * MIB,
        cycle="Node.parent <- Node",
        parts=("Node", "Tree"),
    )
    again = replace(first, place=replace(place, line=9, holder="Tree.root"), cycle="Tree.root <- Tree", parts=("Tree",))
    other = replace(first, place=replace(place, line=20, holder="Job.done"), cycle="Job.done <- Job", parts=("Job",))
    findings = judge(ReferenceCycle(), first, again, other, again)
    assert [finding.line for finding in findings] == [7, 7, 20, 7]
    assert len({finding.cause for finding in findings}) == 2


def test_a_circle_without_a_name_is_that_of_the_context_that_was_told() -> None:
    """MG105 told the function; a circle with a name is another, and so is one that nobody collects."""
    context = FunctionContextHolds(**AT, function_name="Clip", attributes=("aux",), bytes=MIB, cycle=True)
    nameless = FreedByCollector(**{**AT, "place": NOWHERE}, graphs=12, bytes=9 * MIB)
    assert judge(ReferenceCycle(), context, nameless) == []
    assert len(judge(ReferenceCycle(), replace(context, cycle=False), nameless)) == 1
    assert len(judge(ReferenceCycle(), context, replace(nameless, cycle="Node.parent <- Node"))) == 1
    assert len(judge(ReferenceCycle(), context, replace(nameless, collector_enabled=False))) == 1
