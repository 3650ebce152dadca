"""MG308 of weights that were gathered from all ranks: their words, and when they are a warning."""

from dataclasses import replace

from memguard.records.facts import GatheredWeights, ModelCopies
from memguard.records.findings import Severity
from memguard.rules import ALL_RULES
from tests.rules.evidence import AT, GIB, MIB, judge, run_of

RULE = next(rule for rule in ALL_RULES if rule.code == "MG308")
WHOLE = ModelCopies(**AT, copies=1, bytes=2 * GIB, holders=("Exporter.full",), gathered=True)
LEFT = GatheredWeights(**AT, parameters=12, bytes=2 * GIB, name="Trainer.reference")
SMALL = run_of(peak_bytes=4 * GIB)


def test_whole_weights_of_a_sharded_model_are_a_warning_by_their_share_of_the_peak() -> None:
    """A single copy of an ordinary model may be wanted; ranks shard one so that none holds all of it."""
    (claim,) = judge(RULE(), WHOLE, run=SMALL)
    assert claim.severity is Severity.WARNING and "gathered from all ranks" in claim.message
    assert "Exporter.full" in claim.message and "cpu_offload=True" in claim.advice
    (mild,) = judge(RULE(), replace(WHOLE, bytes=300 * MIB), run=SMALL)
    assert mild.severity is Severity.INFO
    (copy,) = judge(RULE(), replace(WHOLE, gathered=False), run=SMALL)
    assert copy.severity is Severity.INFO and "1 copy of" in copy.message


def test_weights_that_stay_gathered_name_the_model_and_both_ways_out() -> None:
    """The finding stands where the model is called, and its holder is the model."""
    (claim,) = judge(RULE(), LEFT, run=SMALL)
    assert (claim.severity, claim.holder, claim.line) == (Severity.WARNING, "Trainer.reference", 41)
    assert "12 weights" in claim.message and "`Trainer.reference`" in claim.message
    assert "call reference.reshard()" in claim.advice and "reshard_after_forward=True" in claim.advice
