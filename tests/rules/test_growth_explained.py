"""What MG501 says of a growth whose cause is known, like parameters that become more."""

from collections.abc import Callable
from dataclasses import replace

from memguard.records.claims import Claim
from memguard.records.facts import (
    NOWHERE,
    Fact,
    FunctionContextHolds,
    GradientsWithGraph,
    GrowingParameters,
    KeptOutputs,
    ModelCopies,
    SentToProcesses,
    SurvivingAllocations,
    UnexplainedGrowth,
    UnusedGraphs,
    ViewsPinStorage,
)
from memguard.records.findings import Severity
from memguard.rules import ALL_RULES
from memguard.rules.arbiter import settle
from memguard.rules.kept_storage import views_are_much
from tests.rules.evidence import AT, GIB, MIB, PLACE, judge, record, run_of, weighed

RULES = {rule.code: rule for rule in ALL_RULES}
MADE = SurvivingAllocations(**AT, bytes=16 * 24 * MIB, batches=8)
CAST = replace(MADE, place=replace(PLACE, line=23), bytes=8 * 12 * MIB)
OTHER = replace(CAST, place=replace(PLACE, line=25))
GROWTH = [record(i, allocated_end_bytes=4 * GIB + 40 * i * MIB) for i in range(300)]


def growth_after(*facts: Fact) -> list[Claim]:
    return judge(RULES["MG501"](), *facts, *GROWTH)


def test_parameters_that_become_more_are_named_before_the_line_that_allocates() -> None:
    """By who gets them; alone they are no finding."""
    more = GrowingParameters(**{**AT, "place": replace(PLACE, line=7)}, parameters=30, batches=30, bytes=30 * MIB)
    for facts in ((more, MADE), (MADE, more)):
        (told,) = growth_after(*facts)
        assert (told.severity, told.line) == (Severity.CRITICAL, 7) and "more parameters to train" in told.message
    assert judge(RULES["MG501"](), more) == []


CACHE = KeptOutputs(
    **{**AT, "place": replace(PLACE, line=18, holder="masks")},
    tensors=12,
    first_batch=0,
    bytes=12 * 40 * MIB,
    bytes_per_batch=40.0 * MIB,
    bounded=False,
    cached=True,
)


def test_a_cache_is_told_once_it_fills_and_is_critical_once_the_floor_leads_to_the_limit() -> None:
    """At its own line, with what to do about its keys; MG301 leaves it to this rule."""
    early, late = growth_after(CACHE, MADE)
    assert (early.severity, late.severity) == (Severity.WARNING, Severity.CRITICAL)
    assert {(told.line, told.holder, told.cause) for told in (early, late)} == {(18, "masks", early.cause)}
    assert "keys that hardly ever recur" in late.message and "lru_cache(maxsize=" in late.advice
    assert judge(RULES["MG301"](), CACHE, *GROWTH) == []


def test_a_cache_with_a_limit_that_fits_is_no_finding() -> None:
    """It never grows beyond its limit. A limit that needs more memory than there is gives a finding."""
    told = {size: judge(RULES["MG501"](), record(0), replace(CACHE, capacity=size)) for size in (16, 10_000)}
    assert {size: len(found) for size, found in told.items()} == {16: 0, 10_000: 1}


def test_a_cache_that_is_asked_for_its_keys_first_is_a_remark() -> None:
    """Its keys may come again soon, and then it is as large as it will be."""
    (told,) = judge(RULES["MG501"](), replace(CACHE, bounded=True))
    assert told.severity is Severity.INFO
    small = replace(CACHE, bytes_per_batch=float(MIB))
    assert [told.line for told in growth_after(small, MADE)] == [18, MADE.place.line]


def severities_over_epochs(rate: Callable[[int], float]) -> list[Severity]:
    """Of a cache measured every 8 batches in four epochs of 32, that grows by so many MiB a batch in each."""
    rule, run, told, nbytes = RULES["MG501"](), run_of(), list[Severity](), 0.0
    for batch in range(8, 128, 8):
        run.epoch = batch // 32
        nbytes += 8 * rate(run.epoch) * MIB
        fact = replace(CACHE, batch=batch, bytes=round(nbytes), bytes_per_batch=1.0 * MIB, bounded=True)
        told += [claim.severity for claim in weighed(rule.learn(fact, run), run)]
    return told


def test_a_cache_that_a_pass_fills_stays_a_remark() -> None:
    """Whether it began early or late in its first epoch, with a few new keys after it."""
    for rates in ((1, 0, 0, 0), (1, 1, 0.1, 0.1), (1, 0.4, 0.4, 0.4)):
        assert set(severities_over_epochs(rates.__getitem__)) == {Severity.INFO}


def test_a_cache_of_a_few_tensors_is_none() -> None:
    """Eight is what a rule of growth needs."""
    assert judge(RULES["MG501"](), replace(CACHE, tensors=4)) == []


def test_growth_by_views_that_were_warned_of_is_no_second_matter() -> None:
    """A queue that fills with views, maybe late: MG302 says so. Not where they are a small part of it, or others."""
    batches = AT["batch"] + 1
    views = ViewsPinStorage(**AT, views=10, used_bytes=MIB, pinned_bytes=40 * batches * MIB, grows=True)
    assert growth_after(views, MADE) == []
    late = replace(views, batch=700, since=500, pinned_bytes=40 * 200 * MIB)
    assert growth_after(late, MADE) == []
    for others in (
        replace(late, since=0),
        replace(views, pinned_bytes=15 * batches * MIB),
        replace(views, pinned_bytes=GIB, grows=False),
        replace(views, views=1),
    ):
        (told,) = growth_after(others, MADE)
        assert told.severity is Severity.CRITICAL


def test_a_curve_whose_cause_is_told_is_not_told_again() -> None:
    """Gradients that nothing takes, and graphs that gradients with a graph leave behind, whose bytes nobody knows."""
    curve = UnexplainedGrowth(
        **{**AT, "place": NOWHERE}, from_bytes=GIB, to_bytes=5 * GIB, explained_bytes=0, fell=False
    )
    (alone,) = judge(RULES["MG501"](), curve)
    assert alone.severity is Severity.INFO
    cycle = GradientsWithGraph(**AT, parameters=2, bytes=MIB, graphs=16)
    assert judge(RULES["MG501"](), cycle, curve) == []
    context = FunctionContextHolds(**AT, function_name="Gate", attributes=("out",), bytes=MIB, cycle=True)
    assert judge(RULES["MG501"](), context, curve) == []
    teacher = UnusedGraphs(**AT, module="Net", count=4, frozen=True, gradients_bytes=4 * GIB)
    (told,) = judge(RULES["MG202"](), teacher)
    assert [claim.code for claim in settle([alone, told])] == ["MG202"]


def test_a_curve_without_a_name_says_what_other_processes_may_keep() -> None:
    """What was sent to them through CUDA IPC is nobody's here any more."""
    curve = UnexplainedGrowth(**{**AT, "place": NOWHERE}, from_bytes=GIB, to_bytes=5 * GIB, explained_bytes=0)
    (told,) = judge(RULES["MG501"](), SentToProcesses(**AT, tensors=128), curve)
    assert "128 tensors that this process sent to others through CUDA IPC are gone here" in told.message
    assert "ipc_collect" in told.advice
    (alone,) = judge(RULES["MG501"](), curve)
    assert "IPC" not in alone.message + alone.advice


def test_copies_that_were_not_counted_at_the_end_are_about_so_many() -> None:
    """Their number was carried on from the last look."""
    copies = ModelCopies(**AT, copies=79, bytes=79 * 40 * MIB, holders=("kept",))
    for estimated, word in ((False, "79 copies of"), (True, "about 79 copies of")):
        (told,) = judge(RULES["MG308"](), replace(copies, estimated=estimated))
        assert told.message.startswith(word)


def test_views_are_much_of_the_share_that_the_process_may_take() -> None:
    """Not of the device: `torch.cuda.set_per_process_memory_fraction`."""
    views = ViewsPinStorage(**AT, views=10, used_bytes=MIB, pinned_bytes=40 * MIB)
    assert not views_are_much(views, run_of(device_total_bytes=80 * GIB, limit_bytes=80 * GIB))
    assert views_are_much(views, run_of(device_total_bytes=80 * GIB, limit_bytes=GIB // 4))


def test_growth_by_gradients_of_a_backward_that_was_warned_of_is_no_second_matter() -> None:
    """MG104 told of the line whose allocations survive. Not where another one's do, or they are taken away."""
    tied = GradientsWithGraph(**AT, parameters=8, bytes=MIB)
    assert growth_after(tied, MADE) == []
    tensors = replace(MADE, place=replace(PLACE, line=24))  # as large as their gradients
    assert growth_after(tied, tensors, MADE) == []
    few = replace(MADE, bytes=MIB)
    for others in ((tied, CAST), (tied, tensors, few), (replace(tied, cleared=True), MADE)):
        (told,) = growth_after(*others)
        assert told.severity is Severity.CRITICAL


def test_growth_by_gradients_that_no_line_made_is_no_second_matter() -> None:
    """Autograd's threads, which make them on a GPU, have no lines: what forwards made for their graphs has one.

    Not where what has a line is most of the growth, or a model in use keeps the one graph.
    """
    tied = GradientsWithGraph(**AT, parameters=0, bytes=0, graphs=8)
    forward = replace(CAST, bytes=8 * 5 * MIB)
    assert growth_after(tied, forward, replace(forward, place=replace(PLACE, line=25))) == []
    much = replace(CAST, bytes=8 * 30 * MIB)
    for others in ((tied, much), (tied, CAST, OTHER), (replace(tied, parameters=8, graphs=0), forward)):
        (told,) = growth_after(*others)
        assert told.severity is Severity.CRITICAL


def test_growth_by_copies_of_the_weights_that_pile_up_is_no_second_matter() -> None:
    """MG308 warned of them. Not where they come more slowly, or are too few for a warning."""
    few = ModelCopies(**AT, copies=1, bytes=40 * MIB, holders=("best",))
    more = replace(few, batch=few.batch + 100, copies=100, bytes=100 * 40 * MIB)
    assert growth_after(few, more, MADE) == []
    for others in ((few,), (few, replace(more, bytes=10 * 100 * MIB)), (few, replace(more, passing=True))):
        (told,) = growth_after(*others, MADE)
        assert told.severity is Severity.CRITICAL
