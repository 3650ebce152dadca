from __future__ import annotations

import pytest
import torch
from torch import nn

from memguard.evidence.peaks.gradients import GradientsProbe
from memguard.records.facts import GradientsWithGraph, OptimizerStateAhead, StaleGradients
from memguard.records.stats import BatchRecord, MemoryStats, Stage
from tests.evidence.loop import Loop

pytestmark = pytest.mark.filterwarnings("ignore:Using backward")  # torch says it once, to whichever test comes first


def make() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return nn.Linear(256, 256), torch.randn(4, 256)


def line_of(marker: str) -> int:
    with open(__file__) as file:
        return next(number for number, text in enumerate(file, 1) if text.rstrip().endswith(f"# {marker}"))


def test_gradients_with_a_graph_are_told() -> None:
    """backward(create_graph=True) leaves gradients that carry a graph into the next forward."""
    model, x = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Loop(model, kinds=[GradientsProbe]) as loop:
        for _ in loop.batches(4):
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward(create_graph=True)
            optimizer.step()
    model.zero_grad()
    (fact,) = loop.of(GradientsWithGraph)
    assert fact.parameters == 2 and fact.bytes == (256 * 256 + 256) * 4


@pytest.mark.parametrize(("set_to_none", "zeroed"), [(True, False), (False, True)])
def test_gradients_alive_at_the_end_of_the_forward_are_told(set_to_none: bool, zeroed: bool) -> None:
    """zero_grad after the forward, or in place, leaves the gradients beside the activations."""
    model, x = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Loop(model, kinds=[GradientsProbe]) as loop:
        for _ in loop.batches(4):
            loss = model(x).square().mean()
            optimizer.zero_grad(set_to_none=set_to_none)  # late
            loss.backward()
            optimizer.step()
    (fact,) = loop.of(StaleGradients)
    assert fact.zeroed is zeroed
    assert fact.bytes == (256 * 256 + 256) * 4
    assert fact.place.line == line_of("late")


def test_what_the_backward_of_another_model_adds_to_gradients_does_not_zero_them() -> None:
    """The critic's own zero_grad comes after its forward; the generator's loss reached its gradients before."""
    (critic, x), (generator, _) = make(), make()
    optimizer, others = torch.optim.SGD(critic.parameters()), torch.optim.SGD(generator.parameters())
    with Loop(critic, kinds=[GradientsProbe]) as loop:
        for _ in loop.batches(4):
            loss = critic(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            critic(generator(x)).mean().backward()
            others.step()
    (fact,) = loop.of(StaleGradients)
    assert not fact.zeroed


def test_gradients_of_a_loss_with_weights_of_its_own_count_as_well() -> None:
    """What the same optimizer steps on is zeroed with the model's; another's gradients are no matter of this one."""
    (model, x), (head, _), (other, _) = make(), make(), make()
    optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.01)
    elsewhere = torch.optim.SGD(other.parameters(), lr=0.01)
    other(x).sum().backward()
    with Loop(model, head, kinds=[GradientsProbe]) as loop:
        elsewhere.step()
        for _ in loop.batches(4):
            optimizer.zero_grad(set_to_none=False)
            head(model(x)).square().mean().backward()
            optimizer.step()
    (fact,) = loop.of(StaleGradients)
    assert fact.bytes == 2 * (256 * 256 + 256) * 4


def test_gradients_zeroed_in_time_or_accumulated_are_silent() -> None:
    """zero_grad before the forward frees them; accumulation keeps them on purpose."""
    model, x = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Loop(model, kinds=[GradientsProbe]) as loop:
        for _ in loop.batches(4):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        for index in loop.batches(8):
            if index % 4 == 0:
                optimizer.zero_grad()
            model(x).square().mean().backward()
            if index % 4 == 3:
                optimizer.step()
    assert loop.of(StaleGradients) == []


def test_the_state_of_the_first_step_is_known_before_it() -> None:
    """Adam brings two tensors a parameter, SGD with momentum one, plain SGD none."""
    model, x = make()
    nbytes = (256 * 256 + 256) * 4
    for optimizer, tensors in (
        (torch.optim.AdamW(model.parameters()), 2),
        (torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), 1),
        (torch.optim.SGD(model.parameters(), lr=0.1), 0),
    ):
        with Loop(model, kinds=[GradientsProbe], read=lambda: MemoryStats(allocated_bytes=5)) as loop:
            for _ in loop.batches(3):
                model(x).sum().backward()
                optimizer.step()
        facts = loop.of(OptimizerStateAhead)
        assert [fact.state_bytes for fact in facts] == ([tensors * nbytes] if tensors else [])


def test_the_state_of_a_first_step_whose_closure_makes_the_gradients_is_known_too() -> None:
    """With the gradients that are still to come, of the parameters that are trained; as Lightning steps."""
    model, x = make()
    model.bias.requires_grad_(False)
    nbytes = 256 * 256 * 4
    optimizer = torch.optim.AdamW(model.parameters())

    def closure() -> torch.Tensor:
        loss = model(x).sum()
        loss.backward()
        return loss

    with Loop(model, kinds=[GradientsProbe], read=lambda: MemoryStats(allocated_bytes=5)) as loop:
        for _ in loop.batches(3):
            optimizer.step(closure)
    (fact,) = loop.of(OptimizerStateAhead)
    assert (fact.state_bytes, fact.temporary_bytes) == (2 * nbytes, nbytes)


def test_the_state_of_the_first_step_is_told_where_the_optimizer_is_made() -> None:
    """If one line of the file alone makes such a one: that is the line to change."""
    model, x = make()
    optimizer = torch.optim.NAdam(model.parameters())  # made
    with Loop(model, kinds=[GradientsProbe], read=lambda: MemoryStats(allocated_bytes=5)) as loop:
        for _ in loop.batches(3):
            model(x).sum().backward()
            optimizer.step()
    (fact,) = loop.of(OptimizerStateAhead)
    assert fact.place.line == line_of("made")


def test_gradients_with_a_graph_that_wait_for_the_next_zero_grad_are_told() -> None:
    """The cycle stands from the step to the beginning of the next batch, and whatever runs in between."""
    model, x = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Loop(model, kinds=[GradientsProbe]) as loop:
        for _ in loop.batches(5):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward(create_graph=True)  # waits
            optimizer.step()
    model.zero_grad()
    (fact,) = loop.of(GradientsWithGraph)
    assert fact.place.line == line_of("waits")


def test_gradients_with_a_graph_that_are_put_there_by_hand_are_told_where_they_were_made() -> None:
    """The call of torch.autograd.grad before the step, and not the one that a loss needed."""
    model, x = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    parameters = list(model.parameters())
    with Loop(model, kinds=[GradientsProbe]) as loop:
        for _ in loop.batches(5):
            inputs = x.clone().requires_grad_()
            (slope,) = torch.autograd.grad(model(inputs).square().sum(), inputs, create_graph=True)
            gradients = torch.autograd.grad(slope.square().mean(), parameters, create_graph=True)  # by hand
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
    model.zero_grad()
    (fact,) = loop.of(GradientsWithGraph)
    assert fact.place.line == line_of("by hand")


@pytest.mark.parametrize("late", [True, False])
def test_gradients_beside_an_evaluation_are_told_with_its_peak(late: bool) -> None:
    """Unless they are set to None right after the step."""
    model, x = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Loop(model, kinds=[GradientsProbe]) as loop:
        for _ in range(2):
            for _ in loop.batches(3):
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
                if not late:
                    optimizer.zero_grad()
            for _ in loop.batches(2, stage=Stage.VALIDATION):
                with torch.no_grad():
                    model(x)
                loop.record = BatchRecord(
                    batch=loop.batch, stage=Stage.VALIDATION, time=0, seconds=0, allocated_peak_bytes=1000
                )
    model.zero_grad()
    told = [(fact.stage, fact.bytes, fact.peak_bytes) for fact in loop.of(StaleGradients)]
    assert told == ([(Stage.VALIDATION, (256 * 256 + 256) * 4, 1000)] if late else [])


def test_gradients_with_a_graph_that_are_taken_away_after_the_step_are_a_remark() -> None:
    """As torch advises: the block goes on to set them to None, and they live through the step alone."""
    model, x = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Loop(model, kinds=[GradientsProbe]) as loop:
        for _ in loop.batches(5):
            loss = model(x).square().mean()
            loss.backward(create_graph=True)
            optimizer.step()
            optimizer.zero_grad()
    assert [fact.cleared for fact in loop.of(GradientsWithGraph)] == [True]


@pytest.mark.parametrize("automatic", [True, False])
def test_lightnings_own_order_is_no_fault_but_that_of_manual_optimization_is(automatic: bool) -> None:
    """There the user's training_step calls zero_grad itself."""
    model, x = make()
    vars(model)["_automatic_optimization"] = automatic
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Loop(model, kinds=[GradientsProbe]) as loop:
        loop.watch.lightning = True
        for _ in loop.batches(4):
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    (fact,) = loop.of(StaleGradients)
    assert fact.lightning is automatic
