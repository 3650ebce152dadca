from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from memguard.evidence.interface import ProbeContext
from memguard.evidence.kept.exceptions import ExceptionsProbe
from memguard.evidence.peaks.precision import OPEN_BATCHES, AutocastProbe
from memguard.records.facts import ExceptionHolds, Fact
from tests.evidence.loop import Loop, line_of, train_on


def test_a_retry_in_two_halves_is_told_once() -> None:
    """At the first of them: both run in one handler."""
    model, x = nn.Linear(8, 8), torch.randn(4, 8)
    with Loop(model, kinds=[ExceptionsProbe]) as loop:
        for _ in loop.batches(1):
            try:
                raise torch.OutOfMemoryError("CUDA out of memory")
            except torch.OutOfMemoryError:
                model(x[:2])  # first half
                model(x[2:])
    assert [fact.place.line for fact in loop.of(ExceptionHolds)] == [line_of("first half")]


def test_a_retry_does_not_count_what_trains_anyway() -> None:
    """The failed step was given the model and its optimizer: their gradients and states are none of the error's."""
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
        hidden = x * 2
        raise torch.OutOfMemoryError(f"CUDA out of memory after {hidden.numel()} with {model}, {optimizer}")

    with Loop(model, kinds=[ExceptionsProbe]) as loop:
        for number in loop.batches(3):
            x = torch.randn(4, 8)
            try:
                if number == 2:
                    step(model, optimizer, x)
                train_on(optimizer, model(x).sum())
            except torch.OutOfMemoryError:
                model(x[:2])
    [fact] = loop.of(ExceptionHolds)
    assert fact.names == ("step() x", "step() hidden") and fact.bytes == 2 * 4 * 8 * 4


def test_a_region_of_each_batch_that_begins_with_the_models_call_is_not_told() -> None:
    """Where the first that is heard of a batch is the forward, the last one ends inside the next one's region."""
    facts: list[Fact] = []
    probe = AutocastProbe(ProbeContext(), facts.append)
    for _ in range(5):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            probe.on_batch_end()
    assert facts == []


class _Mixed:
    def __init__(self) -> None:
        self.amp = torch.autocast("cpu", dtype=torch.bfloat16)

    def region(self) -> torch.autocast:
        return torch.autocast("cpu", dtype=torch.bfloat16)

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            yield


def _through_a_helper(mixed: _Mixed, batches: Callable[[], None]) -> None:
    with mixed.around():  # helper
        batches()


def _through_a_stack(mixed: _Mixed, batches: Callable[[], None]) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(mixed.region())  # stack
        batches()


def _by_an_attribute(mixed: _Mixed, batches: Callable[[], None]) -> None:
    with mixed.amp:  # attribute
        batches()


def _decorated(mixed: _Mixed, batches: Callable[[], None]) -> None:
    @torch.autocast("cpu", dtype=torch.bfloat16)  # decorated
    def run() -> None:
        batches()

    run()


@pytest.mark.parametrize(
    ("run", "mark"),
    [
        (_through_a_helper, "helper"),
        (_through_a_stack, "stack"),
        (_by_an_attribute, "attribute"),
        (_decorated, "decorated"),
    ],
)
def test_a_region_is_told_where_it_is_entered(run: Callable[..., None], mark: str) -> None:
    """Not where a helper makes it; the loop is in another function."""
    facts: list[Fact] = []
    probe = AutocastProbe(ProbeContext(), facts.append)

    def batches() -> None:
        for _ in range(OPEN_BATCHES):
            probe.on_batch_end()

    run(_Mixed(), batches)
    (fact,) = facts
    assert fact.place is not None and fact.place.line == line_of(mark)


def test_a_helpers_region_of_each_batch_is_not_told() -> None:
    """A context manager of the program's own is entered anew by each batch as well."""
    facts: list[Fact] = []
    probe, mixed = AutocastProbe(ProbeContext(), facts.append), _Mixed()
    for _ in range(5):
        with mixed.around():
            probe.on_batch_end()
    for _ in range(5):
        with mixed.region():
            probe.on_batch_end()
    assert facts == []


def test_a_checkpointed_block_computed_again_is_no_open_region() -> None:
    """Backward computes it under the autocast of its forward."""
    facts: list[Fact] = []
    probe, x = AutocastProbe(ProbeContext(), facts.append), torch.ones(2, requires_grad=True)

    def block(x: torch.Tensor) -> torch.Tensor:
        if torch._C._current_graph_task_id() != -1:  # computed again
            probe.on_batch_end()
        return x * 2

    for _ in range(5):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = checkpoint(block, x, use_reentrant=False)
        y.sum().backward()
    assert facts == []
