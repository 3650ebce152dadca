"""What MG501 says of a growth whose cause is known: weights made anew under autocast, parameters that become more."""

from dataclasses import replace

from memguard.detectors import DETECTORS
from memguard.facts import AutocastOpen, Fact, GrowingParameters, SurvivingAllocations
from memguard.findings import Finding, Severity
from memguard.stats import Stage
from tests.detectors.evidence import AT, GIB, MIB, PLACE, judge, record

RULES = {rule.code: rule for rule in DETECTORS}
REGION = AutocastOpen(**AT, batches=3, bytes=MIB)
MADE = SurvivingAllocations(**AT, allocations=16, bytes=16 * 24 * MIB, batches=8)
CAST = replace(MADE, place=replace(PLACE, line=23), allocations=8, bytes=8 * 12 * MIB)
OTHER = replace(CAST, place=replace(PLACE, line=25))
GROWTH = [record(i, allocated_end_bytes=4 * GIB + 40 * i * MIB) for i in range(300)]


def growth_after(*facts: Fact) -> list[Finding]:
    return judge(RULES["MG501"](), *facts, *GROWTH)


def test_weights_and_their_casts_are_a_remark_beside_the_region() -> None:
    """One line makes as many tensors as two others, each twice as large: casts and what their graphs hold."""
    (told,) = growth_after(REGION, MADE, CAST, OTHER)
    assert told.severity is Severity.INFO and "autocast region" in told.message


def test_growth_that_the_region_does_not_explain_stays_critical() -> None:
    """Of another kind, of an older look, without a region, or beside one of evaluation."""
    evaluating = replace(REGION, stage=Stage.VALIDATION)
    for facts in (
        (MADE, CAST, OTHER),
        (evaluating, MADE, CAST, OTHER),
        (REGION, MADE),
        (REGION, MADE, CAST),
        (REGION, MADE, CAST, replace(OTHER, bytes=8 * 24 * MIB)),
        (REGION, MADE, replace(CAST, batch=90), replace(OTHER, batch=90)),
    ):
        (told,) = growth_after(*facts)
        assert told.severity is Severity.CRITICAL


def test_parameters_that_become_more_are_named_before_the_line_that_allocates() -> None:
    """By who gets them; alone they are no finding."""
    more = GrowingParameters(**{**AT, "place": replace(PLACE, line=7)}, parameters=30, batches=30, bytes=30 * MIB)
    for facts in ((more, MADE), (MADE, more)):
        (told,) = growth_after(*facts)
        assert (told.severity, told.line) == (Severity.CRITICAL, 7) and "more parameters to train" in told.message
    assert judge(RULES["MG501"](), more) == []
