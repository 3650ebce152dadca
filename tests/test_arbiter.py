"""The arbiter: one finding for a cause, a byte explained once, severity by share of the device, whatever the order."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import pytest

from memguard.records.claims import Claim, Evidence
from memguard.records.findings import Finding, Severity
from memguard.records.stats import Run, Stage
from memguard.rules.arbiter import Arbiter, attribute, settle, severity_of
from tests.fakes import claim

MIB = 1024**2
TOTAL = 1024 * MIB


def run_of(**changes: Any) -> Run:
    run = Run(device="virtual:1GiB", device_total_bytes=TOTAL, peak_bytes=400 * MIB)
    for name, value in changes.items():
        setattr(run, name, value)
    return run


def kept(code: str = "MG301", **changes: Any) -> Claim:
    fields: dict[str, Any] = {
        "code": code,
        "file": "train.py",
        "line": 40,
        "holder": "history",
        "stage": Stage.TRAIN,
        "evidence": Evidence.GROWTH,
        "bytes": 30 * MIB,
        "bytes_per_batch": 1.0 * MIB,
        "count": 30,
        "batches_left": 0,
    }
    return claim(**{**fields, **changes})


def some_claims(seed: int) -> list[Claim]:
    """Claims of several rules at few places, so that many of them meet."""
    chance = random.Random(seed)
    found: dict[object, Claim] = {}
    for _ in range(chance.randint(1, 9)):
        one = kept(
            chance.choice(["MG101", "MG102", "MG301", "MG302", "MG308", "MG501", "MG303"]),
            line=chance.choice([None, 40, 41, 60]),
            holder=chance.choice([None, "history", "Meter.total", "Meter.last"]),
            severity=chance.choice(list(Severity)),
            evidence=chance.choice([Evidence.GROWTH, Evidence.GROWTH, Evidence.HELD, Evidence.PEAK]),
            bytes=chance.choice([None, 0, 4096, 5 * MIB, 80 * MIB]),
            count=chance.choice([1, 8, 9]),
        )
        found.setdefault(one.cause, one)
    return list(found.values())


@pytest.mark.parametrize("seed", range(200))
def test_the_order_of_rules_does_not_matter(seed: int) -> None:
    """The same claims in any order are the same findings, with the same words."""
    claims = some_claims(seed)
    orders = [list(order) for order in itertools.islice(itertools.permutations(claims), 24)] + [claims[::-1]]
    told = []
    for order in orders:
        arbiter, run = Arbiter(), run_of()
        for each in order:
            arbiter.add(each, run)
        told.append(dict(arbiter.findings))
    assert all(one == told[0] for one in told)


@pytest.mark.parametrize("seed", range(200))
def test_no_claims_explain_each_other_away(seed: int) -> None:
    """Where there are claims there is a finding."""
    assert settle(some_claims(seed))


@pytest.mark.parametrize("seed", range(200))
def test_no_byte_is_explained_twice(seed: int) -> None:
    """What claims explain and what none explains is the growth, whatever they say, in any order."""
    claims, growth = some_claims(seed), random.Random(seed).choice([0, 4096, 50 * MIB, 500 * MIB])
    first = attribute(claims, growth)
    assert sum(first.explained.values()) + first.unexplained == growth
    assert all(nbytes > 0 for nbytes in first.explained.values())
    assert attribute(claims[::-1], growth) == first


def test_claims_at_one_place_explain_the_same_bytes() -> None:
    """A list that keeps tensors with their graphs is no two growths."""
    graphs, tensors = kept("MG101", bytes=30 * MIB), kept("MG301", bytes=20 * MIB)
    other = kept("MG301", line=60, holder="others", bytes=15 * MIB)
    shares = attribute([tensors, graphs, other], 100 * MIB)
    assert shares.explained == {graphs.cause: 30 * MIB, other.cause: 15 * MIB}
    assert shares.unexplained == 55 * MIB


def test_what_is_held_explains_a_growth_as_well() -> None:
    """Exceptions and copies that are there since are no unknown growth."""
    error = claim(code="MG307", line=47, holder="failures", evidence=Evidence.HELD, bytes=60 * MIB)
    assert attribute([error, kept(bytes=20 * MIB)], 100 * MIB).unexplained == 20 * MIB


@pytest.mark.parametrize(("nbytes", "codes"), [(40 * MIB, ["MG501", "MG301"]), (50 * MIB, ["MG301"])])
def test_the_curve_yields_to_what_explains_half_of_it(nbytes: int, codes: list[str]) -> None:
    """Neither a line that is blamed for it nor the words on the curve stand beside that; it is as bad as they say."""
    curve = claim(code="MG501", line=34, bytes=100 * MIB, severity=Severity.CRITICAL)
    arbiter, run = Arbiter(), run_of()
    for each in (curve, kept(bytes=nbytes, severity=Severity.WARNING)):
        arbiter.add(each, run)
    assert [finding.code for finding in arbiter.findings.values()] == codes
    assert max(finding.severity for finding in arbiter.findings.values()) is Severity.CRITICAL


def test_of_two_words_on_the_curve_the_one_with_a_line_stands() -> None:
    """There is one MG501."""
    lined, curve = claim(code="MG501", line=34, bytes=80 * MIB), claim(code="MG501", line=None, bytes=100 * MIB)
    assert settle([curve, lined]) == [replace(lined, explains=(curve.cause,))] == [lined]


def test_what_lies_inside_of_what_is_told_is_no_second_finding() -> None:
    """The states of clients are told with the dictionary that keeps the clients."""
    clients = kept("MG308", holder="Server.clients", bytes=90 * MIB, names=("Client.state",))
    states = claim(code="MG308", holder="Client.state", bytes=30 * MIB, evidence=Evidence.HELD)
    assert settle([states, clients]) == [clients]


def test_the_more_specific_word_stands() -> None:
    """Graphs rather than the tensors that keep them; not where it is only a remark, at another line or stage."""
    graphs, tensors = kept("MG101"), kept("MG301")
    assert settle([tensors, graphs]) == [graphs]
    for other in (kept(line=41), kept(stage=Stage.VALIDATION), kept(holder="others")):
        assert len(settle([graphs, other])) == 2
    assert len(settle([kept("MG102", severity=Severity.INFO), tensors])) == 2


def test_what_grows_without_a_name_is_what_has_one() -> None:
    """A named holder of at least half of its bytes explains it; a smaller one does not."""
    nameless, named = kept(line=99, holder=None, bytes=34 * MIB), kept("MG101", bytes=30 * MIB)
    assert settle([nameless, named]) == [named]
    assert len(settle([nameless, kept("MG101", bytes=4 * MIB)])) == 2
    graphs = kept("MG101", bytes=4 * MIB)
    assert settle([kept(holder=None, bytes=34 * MIB), graphs]) == [graphs]  # at its own line whatever their sizes


def test_a_list_of_exceptions_is_one_finding_under_all_its_names() -> None:
    """What fills the list fills it under the name of the list of the last epoch, too."""
    error = kept("MG307", line=33, holder="failures", evidence=Evidence.HELD)
    assert settle([kept(line=33, holder="failed"), error]) == [error]


def test_what_an_exception_keeps_is_told_once() -> None:
    """The variables of the failed step are the exception's, other ones are not."""
    error = claim(code="MG307", holder="failures", evidence=Evidence.HELD, names=("step() 'logits'", "step() 'loss'"))
    logits = claim(code="MG303", holder="logits", function="Worker.step", evidence=Evidence.PEAK)
    other = claim(code="MG303", holder="logits", function="evaluate", evidence=Evidence.PEAK)
    assert settle([logits, error, other]) == [error, other]


def test_the_attributes_of_one_meter_are_one_finding() -> None:
    """Statements side by side in one method: the first line, and the others in words."""
    names = {17: "Meter.deque", 18: "Meter.averages", 21: "Meter.total"}
    one, *none = settle(
        [kept("MG101", line=line, holder=name, function="Meter.update") for line, name in names.items()]
    )
    assert not none and "`Meter.averages` (line 18) keeps the same" in one.message and "line 21" in one.message
    apart = [kept("MG101", line=17, holder="losses"), kept("MG101", line=18, holder="outputs")]
    assert len(settle(apart)) == 2


def test_copies_seen_from_afar_are_those_of_the_list_that_keeps_them() -> None:
    """Elements as large, and no more of them, without a line."""
    listed = kept("MG501", holder="Server.clients", count=13, bytes=13 * 8 * MIB)
    copies = claim(code="MG308", holder="Client.state", line=None, count=12, bytes=12 * 8 * MIB, evidence=Evidence.HELD)
    arbiter, run = Arbiter(), run_of()
    told = [arbiter.add(replace(listed, severity=Severity.INFO), run), arbiter.add(copies, run)]
    assert [one and one.severity for one in told] == [Severity.INFO, Severity.WARNING]  # as bad as what it speaks for
    larger = claim(code="MG308", holder="Client.best", line=None, count=12, bytes=12 * 9 * MIB, evidence=Evidence.HELD)
    assert settle([copies, listed, larger]) == [listed, larger]


def test_models_that_pile_up_and_are_found_by_their_weights_too_are_one_cause() -> None:
    """Under the name that grows, though the weights were first met in other objects; few of them are another copy."""
    pile = kept("MG308", holder="Bus.listeners", count=42, bytes=60 * MIB)
    held = claim(code="MG308", holder="population", line=73, count=140, bytes=58 * MIB, evidence=Evidence.HELD)
    assert settle([held, pile]) == [replace(pile, explains=(held.cause,))]
    assert len(settle([replace(held, bytes=2 * MIB), pile])) == 2


def test_what_views_of_a_list_keep_is_no_second_word_on_the_list() -> None:
    """That they keep whole storages says more than that elements are added; that their graphs live says more still."""
    views, tensors, graphs = kept("MG302"), kept("MG301"), kept("MG101")
    assert [one.code for one in settle([tensors, views])] == ["MG302"]
    assert [one.code for one in settle([tensors, views, graphs])] == ["MG101"]


def test_a_variable_made_again_while_it_is_alive_is_one_cause() -> None:
    """Letting it go first ends both: it is not alive at the peak, and there are not two."""
    alive = claim(code="MG304", holder="noise", line=11, evidence=Evidence.PEAK)
    again = claim(code="MG305", holder="noise", line=11, evidence=Evidence.PEAK)
    other = claim(code="MG304", holder="masks", line=14, evidence=Evidence.PEAK)
    assert [one.code for one in settle([alive, again, other])] == ["MG305", "MG304"]


def test_severity_goes_by_share_and_direction() -> None:
    """A thousandth that stays is nothing, a fifth is a warning, what will not fit is critical; a limit is respected."""
    run = run_of()
    remark = kept(severity=Severity.INFO, evidence=Evidence.HELD, bytes_per_batch=None)
    judged = {
        "little": replace(remark, bytes=MIB // 2),
        "some": replace(remark, bytes=20 * MIB),
        "much": replace(remark, bytes=300 * MIB),
        "most of the peak": replace(remark, bytes=210 * MIB),
        "limited": replace(remark, bytes=300 * MIB, is_limited=True),
        "much at the peak": replace(remark, bytes=300 * MIB, evidence=Evidence.PEAK),
        "some at the peak": replace(remark, bytes=20 * MIB, evidence=Evidence.PEAK),
        "grows": replace(remark, bytes=4, evidence=Evidence.GROWTH, bytes_per_batch=4.0),
        "overflows": replace(remark, evidence=Evidence.GROWTH, bytes_per_batch=1.0 * MIB, batches_left=700),
    }
    assert {name: severity_of(one, run) for name, one in judged.items()} == {
        "little": None,
        "some": Severity.INFO,
        "much": Severity.WARNING,
        "most of the peak": Severity.WARNING,
        "limited": Severity.INFO,
        "much at the peak": Severity.WARNING,
        "some at the peak": Severity.INFO,
        "grows": Severity.INFO,
        "overflows": Severity.CRITICAL,
    }


def test_a_little_that_is_cleared_in_time_is_nothing_on_the_host_either() -> None:
    """The moves of a roll-out. What is not cleared is told of, however little it is."""
    run = run_of(device="cpu")
    moves = kept(severity=Severity.INFO, bytes=8192, bytes_per_batch=256.0, batches_left=14, ends=True)
    assert severity_of(moves, run) is None
    assert severity_of(replace(moves, ends=False), run) is Severity.INFO
    assert severity_of(replace(moves, bytes=2 * MIB), run) is Severity.INFO


def test_an_earlier_remark_swallows_nothing_worse() -> None:
    """It is told again when it is critical, and no third time; the batch is then when it became that."""
    arbiter, run = Arbiter(), run_of()
    told = [
        arbiter.add(kept(severity=severity, batch=batch, is_limited=True), run)
        for batch, severity in enumerate((Severity.INFO, Severity.CRITICAL, Severity.WARNING, Severity.CRITICAL))
    ]
    assert [finding and finding.severity for finding in told] == [Severity.INFO, Severity.CRITICAL, None, None]
    (finding,) = arbiter.findings.values()
    assert (finding.severity, finding.batch) == (Severity.CRITICAL, 1)


def test_a_finding_began_when_the_first_of_its_memory_came() -> None:
    """Later looks may see the newer part alone; one that does not know when changes nothing."""
    arbiter, run = Arbiter(), run_of()
    for batch, since in ((9, 4), (12, 2), (20, 15), (30, None)):
        arbiter.add(kept(bytes=batch * MIB, count=batch, batch=batch, since=since), run)
    (finding,) = arbiter.findings.values()
    assert (finding.since, finding.batch) == (2, 9)
    assert Finding.from_json(finding.to_json()).since == 2


def test_newer_numbers_replace_the_words_and_the_batch_stays() -> None:
    """More of it is told anew; what was let go since leaves the most that there was."""
    arbiter, run = Arbiter(), run_of()
    for batch, size in ((3, 10), (9, 40), (12, 20)):
        arbiter.add(kept(message=f"{size} MiB", bytes=size * MIB, count=size, batch=batch), run)
    (finding,) = arbiter.findings.values()
    assert (finding.message, finding.bytes, finding.count, finding.batch) == ("40 MiB", 40 * MIB, 40, 3)


def test_more_graphs_of_unknown_size_are_newer_numbers() -> None:
    """A count that has risen is told although the bytes are not known any more; fewer, or as many, are not."""
    arbiter, run = Arbiter(), run_of()
    arbiter.add(kept(count=8, bytes=30 * MIB), run)
    arbiter.add(kept(count=8, bytes=None), run)
    assert [(finding.count, finding.bytes) for finding in arbiter.findings.values()] == [(8, 30 * MIB)]
    arbiter.add(kept(count=80, bytes=None), run)
    arbiter.add(kept(count=20, bytes=90 * MIB), run)
    assert [(finding.count, finding.bytes) for finding in arbiter.findings.values()] == [(80, None)]


def test_what_was_counted_at_the_end_goes_before_any_estimate() -> None:
    """Whichever comes first, and whichever is more."""
    for order in ((True, False), (False, True)):
        arbiter, run = Arbiter(), run_of()
        for is_final in order:
            arbiter.add(
                kept(count=15 if is_final else 20, bytes=(15 if is_final else 20) * MIB, is_final=is_final), run
            )
        assert [(finding.count, finding.bytes) for finding in arbiter.findings.values()] == [(15, 15 * MIB)]
