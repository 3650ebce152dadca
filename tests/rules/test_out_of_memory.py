"""An error that proves a rule right is told under that rule's code."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memguard.records.facts import KeptOutputs, MicroBatchGraphs, OptimizerStateAhead, RanOutOfMemory
from memguard.records.findings import Severity
from memguard.rules import ALL_RULES
from memguard.rules.arbiter import settle
from tests.rules.evidence import AT, GIB, MIB, judge, record

RULES = {rule.code: rule for rule in ALL_RULES}
ERROR = RanOutOfMemory(**AT, cause="size", why="Size: too large.", advice="make the batch smaller.")


@pytest.mark.parametrize(
    ("code", "cause"), [("MG401", "fragmentation"), ("MG502", "optimizer-state"), ("MG503", "long-batch")]
)
def test_an_error_is_told_by_the_rule_of_its_cause(code: str, cause: str) -> None:
    """Critical with the post-mortem's words, once; errors of another cause say nothing."""
    found = judge(RULES[code](), replace(ERROR, cause=cause), replace(ERROR, cause=cause))
    assert [(each.severity, each.line) for each in found] == [(Severity.CRITICAL, 41)]
    assert "Size: too large." in found[0].message
    assert judge(RULES[code](), ERROR) == []


@pytest.mark.parametrize("kind", ["MG101", "MG102", None])
def test_graphs_that_filled_the_device_are_told_by_their_own_rule(kind: str | None) -> None:
    """One rule alone tells a leak: MG501 where nobody knows what kind it is."""
    leak = replace(ERROR, cause="leak", rule=kind)
    told = {code for code in ("MG101", "MG102", "MG501") if judge(RULES[code](), leak)}
    assert told == {kind or "MG501"}


def test_an_error_that_the_program_caught_is_no_alarm() -> None:
    """Searching for the largest batch means to run out of memory."""
    found = judge(RULES["MG503"](), replace(ERROR, cause="long-batch", caught=True))
    assert [each.severity for each in found] == [Severity.INFO]


def test_an_error_after_the_first_step_is_told_at_the_step() -> None:
    """The next backward fails, yet the line to look at is the optimizer's."""
    ahead = OptimizerStateAhead(
        **{**AT, "place": replace(AT["place"], line=18)},
        optimizer="SGD",
        state_bytes=GIB,
        temporary_bytes=0,
        allocated_bytes=GIB,
        peak_bytes=2 * GIB,
    )
    found = judge(RULES["MG502"](), ahead, replace(ERROR, cause="optimizer-state", holder="SGD"))
    assert [each.line for each in found] == [18]


def test_one_reading_of_the_driver_proves_nobody_else() -> None:
    """A reading taken amid an error or a flush shows this process's own memory; a second one would confirm it."""
    readings = [12 * GIB, 19 * GIB, 12 * GIB + MIB, 12 * GIB + 2 * MIB]
    records = [record(i, device_used_bytes=readings[max(0, i - 6)]) for i in range(10)]
    assert judge(RULES["MG601"](), *records) == []


def test_a_leak_that_was_only_remarked_on_becomes_critical() -> None:
    """Memory ran out of what MG301 took for bounded: the same cause, now with the error's words."""
    remarked = KeptOutputs(**AT, tensors=20, first_batch=0, bytes=GIB, bytes_per_batch=38.0 * MIB, bounded=True)
    leak = replace(ERROR, cause="leak", why="A leak.", holder=remarked.place.holder)
    mild, critical = judge(RULES["MG301"](), remarked, leak, leak)
    assert (mild.severity, critical.severity, critical.cause) == (Severity.INFO, Severity.CRITICAL, mild.cause)
    assert "A leak." in critical.message
    for other in (replace(leak, caught=True), replace(leak, holder="another"), ERROR):
        assert len(judge(RULES["MG301"](), remarked, other)) == 1


def test_a_leak_that_another_rule_names_better_is_told_by_that_rule_alone() -> None:
    """MG301's words on the error are of the same memory as MG106's graphs, and its advice would not cut them."""
    remarked = KeptOutputs(**AT, tensors=20, first_batch=0, bytes=GIB, bytes_per_batch=38.0 * MIB, bounded=True)
    graphs = MicroBatchGraphs(**AT, graphs=20, bytes=GIB, saves=True, peak_bytes=2 * GIB)
    leak = replace(ERROR, cause="leak", why="A leak.")
    (named,) = judge(RULES["MG106"](), graphs)
    _, critical = judge(RULES["MG301"](), remarked, leak)
    assert [claim.code for claim in settle([named, critical])] == ["MG106"]
