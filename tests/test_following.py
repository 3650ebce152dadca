"""What was told of is followed through the records: final counts, bytes and ranges, as the floor bears them out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memguard.records.facts import (
    ExceptionHolds,
    Fact,
    FreedByCollector,
    KeptOutputs,
    ModelCopies,
    Place,
    RetainedGraphs,
)
from memguard.records.stats import BatchRecord, Stage
from memguard.rules.growth_attribution import Batches, GrowthAttribution

KIB = 1024
PLACE = Place(file="train.py", line=6, holder="kept")
GRAPHS = RetainedGraphs(
    batch=10, stage=Stage.TRAIN, place=PLACE, graphs=8, first_batch=0, last_batch=7, optimizer_steps=3, bytes=320 * KIB
)
KEPT = KeptOutputs(
    batch=9,
    stage=Stage.VALIDATION,
    place=PLACE,
    tensors=10,
    first_batch=0,
    bytes=100 * KIB,
    bytes_per_batch=10.0 * KIB,
)


def run(
    follow: GrowthAttribution, first: int, last: int, each: int, *, stage: Stage = Stage.TRAIN, begin: int = 0
) -> None:
    """Batches from one number to another, each of which leaves so many bytes more."""
    for batch in range(first, last + 1):
        end = begin + each * (batch - first + 1)
        record = BatchRecord(batch=batch, stage=stage, time=0.0, seconds=0.1, allocated_end_bytes=end)
        follow.observe([(record,)])


def newest(follow: GrowthAttribution) -> Fact:
    (fact,) = follow.newest()
    return fact


def graphs_after(each: int) -> RetainedGraphs:
    """What is told of 600 batches, each of which leaves so many bytes."""
    follow = GrowthAttribution()
    run(follow, 0, 10, 40 * KIB)
    follow.learn(GRAPHS)
    run(follow, 11, 599, each, begin=11 * 40 * KIB)
    fact = newest(follow)
    assert isinstance(fact, RetainedGraphs)
    return fact


def test_at_the_end_all_graphs_are_counted() -> None:
    """Six hundred of 40 KiB, though eight were seen when it was told."""
    fact = graphs_after(40 * KIB)
    assert abs(fact.graphs - 600) <= 6 and fact.last_batch == 599
    assert fact.bytes is not None and abs(fact.bytes - 600 * 40 * KIB) <= 0.02 * 600 * 40 * KIB


def test_what_was_let_go_since_stays_as_it_was_told() -> None:
    """Where the floor does not rise by half of it, nothing more came."""
    assert graphs_after(0) == GRAPHS


@pytest.mark.parametrize(("goes_on", "graphs"), [(0, 60), (2, 8)])
def test_what_is_let_go_where_the_program_ends_was_kept_until_then(goes_on: int, graphs: int) -> None:
    """The last batch ends with the program, and holds nothing any more; where others follow, it was let go before."""
    follow = GrowthAttribution()
    run(follow, 0, 10, 40 * KIB)
    follow.learn(GRAPHS)
    run(follow, 11, 58, 40 * KIB, begin=11 * 40 * KIB)
    run(follow, 59, 59 + goes_on, 0)
    fact = newest(follow)
    assert isinstance(fact, RetainedGraphs) and abs(fact.graphs - graphs) <= 1


def test_graphs_that_share_what_they_hold_are_no_larger_than_the_floor_shows() -> None:
    """Inputs that a list of the program's has anyway are in each graph, and come with none."""
    fact = graphs_after(30 * KIB)
    assert abs(fact.graphs - 600) <= 6
    assert fact.bytes is not None and abs(fact.bytes - 600 * 30 * KIB) <= 0.02 * 600 * 30 * KIB


def test_graphs_of_batches_that_nobody_followed_are_counted_too() -> None:
    """Of every fourth batch a graph was looked for, and there: it is there of all."""
    follow = GrowthAttribution()
    run(follow, 0, 99, 40 * KIB)
    fact = follow.learn(replace(GRAPHS, batch=99, graphs=25, last_batch=99, bytes=25 * 40 * KIB, followed=25))
    assert isinstance(fact, RetainedGraphs)
    assert (fact.graphs, fact.bytes) == (100, 100 * 40 * KIB)


@pytest.mark.parametrize(
    ("bounded", "in_training", "tensors"), [(True, 800 * KIB, 80), (False, 800 * KIB, 160), (False, 0, 80)]
)
def test_what_ends_with_its_pass_is_counted_to_the_pass_s_end(bounded: bool, in_training: int, tensors: int) -> None:
    """A list that is cleared where the epoch ends, or is gone as training goes on; one that stays goes on."""
    follow = GrowthAttribution()
    run(follow, 0, 9, 10 * KIB, stage=Stage.VALIDATION)
    follow.learn(replace(KEPT, bounded=bounded))
    run(follow, 10, 79, 10 * KIB, stage=Stage.VALIDATION, begin=100 * KIB)
    run(follow, 80, 89, 0, begin=in_training)
    run(follow, 90, 169, 10 * KIB, stage=Stage.VALIDATION, begin=800 * KIB)
    fact = newest(follow)
    assert isinstance(fact, KeptOutputs) and fact.tensors == tensors


def test_what_training_found_kept_goes_on_in_the_next_pass() -> None:
    """The source takes something out of it somewhere: that did not happen before training went on."""
    follow = GrowthAttribution()
    run(follow, 0, 9, 10 * KIB, stage=Stage.VALIDATION)
    follow.learn(replace(KEPT, outlasts=True))
    run(follow, 10, 19, 0, begin=100 * KIB)
    run(follow, 20, 29, 10 * KIB, stage=Stage.VALIDATION, begin=100 * KIB)
    fact = newest(follow)
    assert isinstance(fact, KeptOutputs) and (fact.tensors, fact.bytes) == (20, 200 * KIB)


def test_what_doubles_is_told_anew_while_the_run_goes_on() -> None:
    """At twice, four times and eight times the batches; not in between."""
    follow, told = GrowthAttribution(), 0
    run(follow, 0, 10, 40 * KIB)
    follow.learn(GRAPHS)
    for batch in range(11, 100):
        run(follow, batch, batch, 40 * KIB, begin=batch * 40 * KIB)
        told += len(list(follow.doubled()))
    assert 3 <= told <= 4


def test_batches_are_counted_by_stage() -> None:
    """However they alternate."""
    batches = Batches()
    for first, stage in ((0, Stage.TRAIN), (10, Stage.VALIDATION), (15, Stage.TRAIN)):
        batches.observe(stage, first, 5 if stage is Stage.VALIDATION else 10)
    assert batches.between(Stage.TRAIN, 0, 24) == 20
    assert batches.between(Stage.TRAIN, 8, 16) == 4
    assert batches.between(Stage.VALIDATION, 0, 100) == 5
    assert batches.between(Stage.TEST, 0, 100) == 0


def test_graphs_are_counted_and_measured_as_one() -> None:
    """What was measured is of all batches until then, and goes on as it grew, however few are counted later."""
    follow = GrowthAttribution()
    run(follow, 0, 10, 40 * KIB)
    follow.learn(GRAPHS)
    run(follow, 11, 19, 100 * KIB)
    measured = follow.learn(replace(GRAPHS, batch=19, bytes=2000 * KIB, measured=True))
    assert isinstance(measured, RetainedGraphs) and (measured.graphs, measured.last_batch) == (20, 19)
    run(follow, 20, 29, 100 * KIB)
    counted = follow.learn(replace(GRAPHS, batch=29, graphs=18, last_batch=17, bytes=720 * KIB))
    assert isinstance(counted, RetainedGraphs) and (counted.graphs, counted.bytes) == (30, 3000 * KIB)


def test_what_comes_now_and_then_is_followed_by_its_last_rate() -> None:
    """Errors that were kept since the last look, as far as the floor bears that out."""
    follow = GrowthAttribution()
    error = ExceptionHolds(batch=9, place=PLACE, stage=Stage.TRAIN, exception="E", handling=False, names=(), bytes=KIB)
    run(follow, 0, 9, KIB)
    follow.learn(error)
    run(follow, 10, 19, KIB)
    follow.learn(replace(error, batch=19, bytes=11 * KIB))
    run(follow, 20, 39, KIB, begin=10 * KIB)
    fact = newest(follow)
    assert isinstance(fact, ExceptionHolds) and fact.bytes == 31 * KIB


@pytest.mark.parametrize(("is_collected", "circles"), [(False, 40), (True, 10)])
def test_garbage_that_nothing_collects_piles_up_to_the_end(is_collected: bool, circles: int) -> None:
    """In rollouts and steps in turns, too: no end of a pass lets it go; what is collected is as it was found."""
    follow, found = GrowthAttribution(), FreedByCollector(batch=9, place=PLACE, stage=Stage.PREDICT, graphs=0, bytes=0)
    run(follow, 0, 9, 4 * KIB, stage=Stage.PREDICT)
    follow.learn(replace(found, bytes=40 * KIB, circles=10, is_collected=is_collected))
    for batch in range(10, 40):
        run(follow, batch, batch, 4 * KIB, stage=Stage.PREDICT, begin=4 * KIB * batch)
        run(follow, batch, batch, 0)
    fact = newest(follow)
    assert isinstance(fact, FreedByCollector) and (fact.circles, fact.bytes) == (circles, circles * 4 * KIB)


def test_copies_that_come_more_rarely_than_at_last_are_counted_on_by_the_floor() -> None:
    """Two came within three batches, and one in twenty since: those that were counted stay."""
    follow = GrowthAttribution()
    copies = ModelCopies(
        **{"batch": 9, "stage": Stage.TRAIN, "place": PLACE, "copies": 1, "bytes": 100 * KIB},
        holders=("kept",),
        averaged=False,
    )
    run(follow, 0, 9, 10 * KIB)
    follow.learn(copies)
    run(follow, 10, 12, 30 * KIB, begin=100 * KIB)
    follow.learn(replace(copies, batch=12, copies=2, bytes=200 * KIB))
    run(follow, 13, 32, 25 * KIB, begin=190 * KIB)
    fact = newest(follow)
    assert isinstance(fact, ModelCopies) and (fact.copies, fact.bytes) == (7, 700 * KIB)


@pytest.mark.parametrize(("seen", "at_end"), [((2, 4, 6), 26), ((2, 4, 3, 4), 4)])
def test_copies_that_were_fewer_once_are_not_counted_on(seen: tuple[int, ...], at_end: int) -> None:
    """A list of one round's updates fills and is gone, while something else makes the floor rise."""
    follow = GrowthAttribution()
    for round_, copies in enumerate(seen):
        run(follow, 10 * round_, 10 * round_ + 9, 20 * KIB, begin=200 * KIB * round_)
        follow.learn(
            ModelCopies(
                batch=10 * round_ + 9,
                stage=Stage.TRAIN,
                place=PLACE,
                copies=copies,
                bytes=100 * KIB * copies,
                holders=("kept",),
                averaged=False,
            )
        )
    last = 10 * len(seen)
    run(follow, last, last + 99, 20 * KIB, begin=20 * KIB * last)
    fact = newest(follow)
    assert isinstance(fact, ModelCopies) and fact.copies == at_end and fact.bytes == 100 * KIB * at_end
    assert fact.estimated is (at_end > seen[-1])


@pytest.mark.parametrize(("each", "rises"), [(10 * KIB, True), (0, False)])
def test_a_growth_that_the_floor_does_not_bear_out_is_none(each: int, rises: bool) -> None:
    """The cache of one sequence is let go before the next: at two looks it grew, and the floor is where it was."""
    follow = GrowthAttribution()
    for sequence in range(6):
        run(follow, 8 * sequence, 8 * sequence + 7, 10 * KIB, stage=Stage.VALIDATION, begin=8 * sequence * each)
    fact = follow.learn(replace(KEPT, batch=47, tensors=48, bytes=480 * KIB))
    assert (fact is not None) is rises
