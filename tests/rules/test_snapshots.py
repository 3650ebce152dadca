"""Snapshots of the weights that pile up are one cause: MG308 tells of it, and MG301 does not tell it again."""

from dataclasses import replace

from memguard.records.facts import KeptOutputs, ModelCopies
from memguard.records.findings import Severity
from memguard.rules import ALL_RULES
from tests.rules.evidence import AT, GIB, MIB, PLACE, judge, record, run_of

RULES = {rule.code: rule for rule in ALL_RULES}
PILE = ModelCopies(**AT, copies=4, bytes=48 * MIB, holders=("history",))
GROWS = KeptOutputs(**AT, tensors=8, first_batch=0, bytes=96 * MIB, bytes_per_batch=3.0 * MIB, bounded=False)
LONG = run_of(batches_left=None, device_total_bytes=8 * GIB, limit_bytes=8 * GIB)


def test_a_pile_of_copies_is_told_by_one_rule() -> None:
    """What grows is the pile that was told: MG308 warns of it, however small its share still is."""
    assert judge(RULES["MG301"](), PILE, GROWS, run=LONG) == []
    mild, growing = judge(RULES["MG308"](), PILE, GROWS, run=LONG)
    assert (mild.severity, growing.severity) == (Severity.INFO, Severity.WARNING)
    assert mild.cause == growing.cause and "more come" in growing.message


def test_copies_that_came_after_the_first_was_told_are_the_same_cause() -> None:
    """One copy with each epoch: when the first was seen there was no other, and more came to the same place."""
    first = replace(PILE, copies=1, bytes=12 * MIB)
    assert judge(RULES["MG301"](), first, GROWS, run=LONG) == []
    mild, growing = judge(RULES["MG308"](), first, GROWS, run=LONG)
    assert mild.cause == growing.cause and growing.severity is Severity.WARNING
    assert "8 copies" in growing.message and "more come" in growing.message
    elsewhere = replace(GROWS, place=replace(PLACE, line=77))
    assert len(judge(RULES["MG301"](), first, elsewhere, run=LONG)) == 1


def test_models_that_were_seen_to_come_before_they_were_seen_to_be_kept_are_one_cause() -> None:
    """Recurrent ones show their weights once more, in a list: MG301 has no word for those, whatever comes of them."""
    models, grows = replace(PILE, holders=()), replace(GROWS, weights=True)
    assert judge(RULES["MG301"](), grows, models, run=LONG) == []
    growing, mild = judge(RULES["MG308"](), grows, models, run=LONG)
    assert (growing.severity, mild.severity) == (Severity.WARNING, Severity.INFO) and growing.cause == mild.cause
    assert "keeps 8 models" in growing.message and "more come" in growing.message
    assert judge(RULES["MG308"](), replace(grows, bounded=True), run=LONG) == []


def test_a_pile_that_will_not_fit_is_critical() -> None:
    """As MG301 would tell of it."""
    (_, growing) = judge(RULES["MG308"](), record(0), PILE, replace(GROWS, bytes_per_batch=30.0 * MIB))
    assert growing.severity is Severity.CRITICAL


def test_what_else_grows_is_still_told() -> None:
    """Outputs under another name, heavier elements, and what grows where one copy alone or an average lies."""
    other = replace(GROWS, place=replace(PLACE, holder="outputs", line=77))
    elsewhere = replace(GROWS, place=replace(PLACE, file="/home/me/other.py"))
    for fact in (other, elsewhere, replace(GROWS, bytes=GIB)):
        assert len(judge(RULES["MG301"](), PILE, fact, run=LONG)) == 1
        assert len(judge(RULES["MG308"](), PILE, fact, run=LONG)) == 1
    for copies in (replace(PILE, copies=1), replace(PILE, averaged=True), replace(PILE, passing=True)):
        assert len(judge(RULES["MG301"](), copies, GROWS, run=LONG)) == 1


def test_a_pile_that_something_bounds_is_no_warning_of_its_own() -> None:
    """A window of the last few, or a log of a tiny model's weights: the copies were told, no more."""
    for fact in (replace(GROWS, bounded=True), replace(GROWS, bytes=8 * 400, bytes_per_batch=100.0)):
        assert [told.severity for told in judge(RULES["MG308"](), PILE, fact, run=LONG)] == [Severity.INFO]


def test_models_that_are_trained_beside_are_not_called_copies() -> None:
    """An ensemble of which only the first is watched: nothing is wrong with it."""
    (beside,) = judge(RULES["MG308"](), replace(PILE, copies=1, trained=True), run=LONG)
    assert "copy" not in beside.message and "gradients of its own" in beside.message
    assert beside.advice is not None and beside.advice.startswith("nothing to do")


def test_where_the_host_is_watched_nobody_is_sent_there() -> None:
    """What lies in its memory is told so, and moving it to the CPU helps nobody."""
    for code, fact in (("MG308", PILE), ("MG301", GROWS)):
        (on_device,) = judge(RULES[code](), fact, run=LONG)
        (on_host,) = judge(RULES[code](), fact, run=run_of(device="cpu", device_total_bytes=None, limit_bytes=None))
        assert "on the device" in on_device.message and "on the device" not in on_host.message
        assert "CPU" in (on_device.advice or "") and "CPU" not in (on_host.advice or "")


def test_models_that_a_cache_keeps_are_a_remark() -> None:
    """It may give them back in each round; in a list nobody asks for them again."""
    for cached, severity in ((True, Severity.INFO), (False, Severity.WARNING)):
        models = replace(GROWS, weights=True, measured=True, cached=cached, bounded=False, bytes=GIB)
        (told,) = judge(RULES["MG308"](), models, run=LONG)
        assert told.severity is severity and " models with their weights " in told.message
        assert judge(RULES["MG301"](), models, run=LONG) == judge(RULES["MG501"](), models, run=LONG) == []


def test_one_copy_is_told_in_the_singular() -> None:
    """One is, two are."""
    for copies, words in ((1, "1 copy of the model's weights (64.0 MiB) is "), (2, "weights (64.0 MiB) are ")):
        (told,) = judge(RULES["MG308"](), ModelCopies(**AT, copies=copies, bytes=64 * MIB, holders=("best",)))
        assert words in told.message


def test_only_what_is_known_to_be_a_copy_or_an_average_is_called_one() -> None:
    """Else it has the shapes of the weights, or the name of an average."""
    one = replace(PILE, copies=1)
    (alike,) = judge(RULES["MG308"](), replace(one, alike=True), run=LONG)
    assert alike.message.startswith("1 set of tensors of the shapes of the model's weights (48.0 MiB) is ")
    assert (alike.advice or "").startswith("nothing to do if each step computes with them")
    (average,) = judge(RULES["MG308"](), replace(one, averaged=True), run=LONG)
    assert average.message.endswith(": an average of the weights, usually wanted.")
    (named,) = judge(RULES["MG308"](), replace(one, averaged=True, changing=False), run=LONG)
    assert ": by its name an average" in named.message
