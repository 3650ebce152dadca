"""What rules of graphs, and of memory that Python itself keeps, say where two could tell a cause, or one twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memguard.records.facts import (
    NOWHERE,
    FreedByCollector,
    FunctionContextHolds,
    GradientsWithGraph,
    Place,
    RetainedGraphs,
    SavedAfterBackward,
    UnreadStorages,
    UnusedGraphs,
)
from memguard.records.findings import Severity
from memguard.rules.cycles_and_exceptions import ReferenceCycle
from memguard.rules.graph_buffers import CreateGraphCycle, RetainGraph
from memguard.rules.retained_graphs import CarriedState, MicroBatchGraph, RetainedGraph
from memguard.rules.unused_graphs import EvalGraph, FrozenModelGraph
from tests.rules.evidence import AT, GIB, MIB, PLACE, judge, run_of

OLD = RetainedGraphs(**AT, graphs=8, first_batch=0, last_batch=7, optimizer_steps=3)
BACKWARD = Place(file="/home/me/train.py", line=52, function="main")


def test_retain_graph_for_a_carried_state_is_no_second_warning() -> None:
    """MG103 is information there, and MG102 says that `retain_graph=True` can go once the state is detached."""
    saved = [SavedAfterBackward(**AT, bytes=64 * MIB, tensors=3, carried=carried) for carried in (False, True)]
    (plain,) = judge(RetainGraph(), saved[0], saved[0])
    assert f"by `{PLACE.holder}`" in plain.message and plain.holder == PLACE.holder
    (carried,) = judge(RetainGraph(), saved[1], saved[1])
    assert (plain.severity, carried.severity) == (Severity.WARNING, Severity.INFO)
    state = replace(OLD, carried=True, retained_by=BACKWARD)
    (told,) = judge(CarriedState(), state)
    assert told.advice.endswith("then drop retain_graph=True from the backward at train.py:52 in main().")
    assert "every saved activation included" in told.message  # backward freed nothing of them
    own = Place(file="/home/me/train.py", line=41, holder="Net.trend", source="self.trend = 0.9 * self.trend + h")
    (told,) = judge(CarriedState(), replace(state, place=own))
    assert "self.trend = self.trend.detach()" in told.advice


def test_what_is_kept_beside_a_part_is_told_once_it_has_a_name() -> None:
    """At once where the variable is known; else when it is seen again, with or without."""
    part = SavedAfterBackward(**AT, bytes=64 * MIB, tensors=3, carried=False, part=True)
    unnamed = replace(part, place=replace(PLACE, holder=None))
    assert [finding.holder for finding in judge(RetainGraph(), part)] == [PLACE.holder]
    assert judge(RetainGraph(), unnamed) == []
    assert [finding.holder for finding in judge(RetainGraph(), unnamed, part)] == [PLACE.holder]
    assert [finding.holder for finding in judge(RetainGraph(), unnamed, unnamed)] == [None]


def test_of_two_running_values_that_one_method_updates_one_is_a_warning() -> None:
    """The second, known by the depth of its graph alone, is told as information; elsewhere it is a warning too."""
    mean = Place(file="/home/me/vq.py", line=22, function="Codes.update", holder="Codes.mean", source="self.mean = m")
    first = replace(OLD, place=mean, bytes=MIB, backward=True)
    variance = replace(first, place=replace(mean, line=23, holder="Codes.variance"), optimizer_steps=0, bytes=None)
    variance = replace(variance, deepened=True)
    told = judge(RetainedGraph(), first, variance, first)
    assert [finding.severity for finding in told] == [Severity.WARNING, Severity.INFO, Severity.WARNING]
    told = judge(RetainedGraph(), first, replace(variance, place=replace(variance.place, function="Codes.other")))
    assert [finding.severity for finding in told] == [Severity.WARNING] * 2


def test_of_a_graph_known_by_its_depth_alone_no_size_is_told() -> None:
    """It got longer between two looks: how many batches are in it, and whether a backward ran through it, is open."""
    fact = RetainedGraphs(**AT, graphs=12, first_batch=5, last_batch=17, optimizer_steps=0, deepened=True)
    (told,) = judge(RetainedGraph(), fact)
    assert told.message.endswith("keeps a graph that got longer over 12 batches (batches 5 to 17).")
    (told,) = judge(CarriedState(), replace(fact, carried=True))
    assert told.message.endswith("over 12 batches.")


def test_where_no_size_is_known_of_graphs_behind_their_backward_the_nodes_are_told() -> None:
    """Without a size it is whole too, and claims no more than that."""
    (told,) = judge(RetainedGraph(), OLD)
    assert told.message.endswith("after the last of them was built: at least their nodes, in host memory.")
    (few,) = judge(RetainedGraph(), replace(OLD, bytes=8 * 4))  # the losses alone: their nodes take more
    assert (few.message, few.bytes, few.bytes_per_batch) == (told.message, None, None)


def test_a_circle_through_a_context_is_not_told_as_somebody_out_of_sight() -> None:
    """Where MG105 named the context that keeps its own output, graphs that nobody seems to keep are its own."""
    when = {name: value for name, value in AT.items() if name != "place"}
    nobody = RetainedGraphs(**when, graphs=9, first_batch=0, last_batch=8, optimizer_steps=3)
    context = FunctionContextHolds(**AT, function_name="Swish", attributes=("y",), bytes=MIB, cycle=True)
    assert [finding.code for finding in judge(RetainedGraph(), nobody)] == ["MG101"]
    assert judge(RetainedGraph(), context, nobody) == []
    assert len(judge(RetainedGraph(), replace(context, cycle=False), nobody)) == 1
    assert len(judge(RetainedGraph(), context, replace(nobody, place=PLACE))) == 1


def test_gradients_of_models_that_are_gone_are_told_by_their_graphs() -> None:
    """There is nothing to count on the model then: the backward and the batches are named."""
    (told,) = judge(CreateGraphCycle(), GradientsWithGraph(**AT, parameters=0, bytes=0, graphs=9))
    assert "thrown away" in told.message and "9 batches" in told.message and "0 parameters" not in told.message


def test_gradients_with_a_graph_that_the_program_takes_away_are_a_remark() -> None:
    """They live through the step; what stands to the end of the batch is a warning."""
    facts = [GradientsWithGraph(**AT, parameters=4, bytes=64 * MIB, cleared=cleared) for cleared in (True, False)]
    assert [judge(CreateGraphCycle(), fact)[0].severity for fact in facts] == [Severity.INFO, Severity.WARNING]


def test_parts_that_one_call_runs_through_are_one_finding() -> None:
    """A second model at the same line is the same cause; one at another line is another, and a growing count is not."""
    fact = UnusedGraphs(**AT, module="Linear", count=4)
    same = [fact, replace(fact, module="Sequential"), replace(fact, count=64)]
    other = replace(fact, module="Sequential", place=replace(PLACE, line=99))
    assert [f.line for f in judge(EvalGraph(), *same, other)] == [41, 41, 99]
    frozen = [replace(one, frozen=True) for one in (*same, other)]
    assert [f.line for f in judge(FrozenModelGraph(), *frozen)] == [41, 41, 99]


def test_one_call_of_a_trained_model_is_no_forgotten_eval() -> None:
    """Its values are used; a row of calls in training mode that nobody uses is an evaluation."""
    fact = UnusedGraphs(**AT, module="Critic", count=3, bytes=GIB, training=True)
    (row,) = judge(EvalGraph(), fact)
    assert "model.eval()" in row.advice
    (call,) = judge(EvalGraph(), replace(fact, alone=True))
    assert "values alone" in call.message and "this call alone" in call.advice and "eval()" not in call.advice


def test_a_graph_that_dies_in_training_is_a_warning_where_the_peak_would_miss_it() -> None:
    """That of one layer, of which only the values are wanted, is a remark."""
    fact = UnusedGraphs(**AT, module="Embedding", count=4, bytes=256 * MIB, training=True)
    found = [judge(EvalGraph(), fact, run=run_of(peak_bytes=peak)) for peak in (2 * GIB, 20 * GIB)]
    assert [one.severity for (one,) in found] == [Severity.WARNING, Severity.INFO]


def test_numbers_that_micro_batches_leave_are_a_remark() -> None:
    """A loss may have the storage of its elements: the number alone is to be kept."""
    fact = UnreadStorages(**AT, bytes=GIB, forwards=7, within_step=True, peak_bytes=4 * GIB, numbers=True)
    (found,) = judge(MicroBatchGraph(), fact)
    assert found.severity is Severity.INFO and ".item()" in found.advice


@pytest.mark.parametrize(("nbytes", "severity"), [(64 * MIB, Severity.INFO), (GIB, Severity.WARNING)])
def test_the_graph_of_a_derivative_is_a_warning_where_it_is_a_part_of_the_device(
    nbytes: int, severity: Severity
) -> None:
    """Three per cent of it; and the advice is never no_grad, under which the derivative would fail."""
    (finding,) = judge(EvalGraph(), UnusedGraphs(**AT, module="Net", count=3, bytes=nbytes, derivative=True))
    assert finding.severity is severity and "no_grad" not in finding.advice and "create_graph" in finding.advice


def test_what_feeds_a_class_is_told_beside_the_statement_that_keeps() -> None:
    """The line stays that of the statement."""
    place = replace(PLACE, holder="Meter.sum", function="Meter.update", caller="main.py:60")
    (finding,) = judge(RetainedGraph(), replace(OLD, place=place))
    assert "`Meter.sum` (train.py:41 in Meter.update(), called at main.py:60) keeps" in finding.message
    assert finding.line == 41


def test_the_rate_of_what_is_kept_once_in_some_batches_is_by_the_batch() -> None:
    """Three graphs of every fifth batch are three of fifteen."""
    fact = RetainedGraphs(**AT, graphs=3, first_batch=0, last_batch=10, optimizer_steps=3, bytes=15 * MIB)
    (finding,) = judge(RetainedGraph(), fact)
    assert finding.bytes_per_batch == MIB


@pytest.mark.parametrize(("backward", "saves"), [(True, False), (True, True), (False, True)])
def test_saved_activations_are_spoken_of_where_graphs_still_have_them(backward: bool, saves: bool) -> None:
    """A backward through another part of the batch freed nothing of what is kept."""
    (told,) = judge(RetainedGraph(), replace(OLD, bytes=MIB, backward=backward, saves=saves))
    assert ("every saved activation included" in told.message) is saves
    assert ("nodes in host memory" in told.message) is not saves


def test_gradients_that_torch_autograd_grad_gave_are_to_be_put_there_without_their_graph() -> None:
    """To use torch.autograd.grad, as of a backward, is no advice there."""
    grad = replace(BACKWARD, source="for p, g in zip(params, torch.autograd.grad(loss, params, create_graph=True)):")
    (told,) = judge(CreateGraphCycle(), GradientsWithGraph(**{**AT, "place": grad}, parameters=2, bytes=MIB))
    assert "p.grad = g.detach()" in told.advice and "autograd.grad" not in told.advice


def test_what_a_kept_frame_holds_is_freed_by_keeping_no_frame() -> None:
    """Detaching what goes into the list would detach nothing: what goes in is a frame."""
    kept = replace(PLACE, in_frame=True)
    (told,) = judge(RetainedGraph(), replace(OLD, place=kept, bytes=MIB))
    assert told.advice.startswith("do not keep the frame")


@pytest.mark.parametrize(("enabled", "severity"), [(True, Severity.WARNING), (False, Severity.CRITICAL)])
def test_circles_found_together_are_told_at_once(enabled: bool, severity: Severity) -> None:
    """With their number and size; without the collector they pile up for good."""
    fact = FreedByCollector(
        **AT, graphs=0, circles=12, bytes=3 * MIB, cycle="Node.parent <- Node", is_collected=enabled
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
    assert len(judge(ReferenceCycle(), context, replace(nameless, is_collected=False))) == 1
