"""Arrays and texts that are joined to what every batch brings, and containers of what workers handed over."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from memguard.evidence.kept.scans import ScansProbe
from memguard.heap.host_sizes import block_of, is_large_text
from memguard.records.facts import KeptOnHost, KeptOutputs
from tests.evidence.loop import Loop, statement_of, train_on

Step = Callable[[], None]


def array(rows: int) -> "np.ndarray[tuple[int, ...], np.dtype[np.float32]]":
    return np.zeros((rows, 4096), dtype=np.float32)


def told(*steps: Step) -> list[KeptOnHost]:
    """What is told of a loop that calls these with every batch."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Loop(model, kinds=[ScansProbe]) as loop:
        for _ in loop.batches(20):
            train_on(optimizer, model(torch.randn(4, 4)).sum())
            for step in steps:
                step()
    return loop.of(KeptOnHost)


def test_a_text_that_every_batch_extends_is_told() -> None:
    """Also where what it is extended by is a plain value."""
    log = {"text": ""}

    def extend() -> None:
        log["text"] += "a line of the log\n" * 2000  # extended

    (fact,) = told(extend)
    assert fact.place.holder == "log"
    assert "# extended" in statement_of(fact)


def test_a_window_over_the_newest_rows_is_silent() -> None:
    """And so is an array that is merely another one, longer, in every batch."""
    kept = {"window": array(0), "batch": array(0)}
    sizes = iter(range(1, 100))

    def step() -> None:
        kept["window"] = np.concatenate([kept["window"], array(8)])[-200:]
        kept["batch"] = array(8 * next(sizes))

    assert told(step) == []


@pytest.mark.parametrize(("drawn", "expected"), [(150, 1), (60, 0)])
def test_a_long_list_of_what_workers_handed_over_is_told(drawn: int, expected: int) -> None:
    """It does not grow while the model trains; each element keeps a file open all the same."""
    batches = [torch.zeros(2).share_memory_() for _ in range(drawn)]
    facts = told()
    assert len(facts) == expected and len(batches) == drawn
    assert all(fact.from_workers and fact.place.holder == "batches" for fact in facts)


@pytest.mark.parametrize(("elements", "cleared", "expected"), [(2**19, 99, 1), (8, 99, 0), (2**19, 21, 0)])
def test_few_large_batches_of_workers_that_are_kept_are_told(elements: int, cleared: int, expected: int) -> None:
    """Every second batch of 2 MiB: long before there are many. Not a few numbers, nor a list that was emptied."""
    model, hard = nn.Linear(2, 2), []
    with Loop(model, kinds=[ScansProbe]) as loop:
        for number in loop.batches(60):
            if number >= 14 and number % 2 == 0:
                hard.append((0.1, torch.zeros(elements).share_memory_()))
            if number == cleared:
                hard.clear()
    facts = loop.of(KeptOnHost)
    assert [fact.place.holder for fact in facts if fact.from_workers] == ["hard"] * expected


def test_what_workers_handed_over_lies_on_the_host() -> None:
    """Kept with every batch: where the host or a virtual GPU is the device too; beside an answer it is not all."""
    model = nn.Linear(4, 64 * 64)
    kept: list[tuple[torch.Tensor, ...]] = []
    pairs: list[tuple[torch.Tensor, ...]] = []
    with Loop(model, kinds=[ScansProbe]) as loop:
        for _ in loop.batches(40):
            answer = model(torch.randn(4, 4)).detach()
            kept.append((torch.zeros(64, 64).share_memory_(), torch.zeros(4).share_memory_()))
            pairs.append((torch.zeros(64, 64).share_memory_(), answer))
    assert {fact.place.holder for fact in loop.of(KeptOnHost) if fact.from_workers} == {"kept", "pairs"}
    assert {fact.place.holder for fact in loop.of(KeptOutputs)} == {"pairs"}


class Handle:
    """As an object of a C library: it does not tell what it holds."""

    __slots__ = ()


def test_what_does_not_tell_its_size_is_counted() -> None:
    """It is told, without a size; whether it matters is seen by the memory of the process alone."""
    pictures: list[Handle] = []
    (fact,) = told(lambda: pictures.append(Handle()))
    assert fact.place.holder == "pictures" and fact.bytes_per_batch < 1024


class Hostile(type):
    """A class of classes that must not be asked anything."""

    def __hash__(cls) -> int:
        raise AssertionError("a metaclass was asked for its hash")

    def __eq__(cls, other: object) -> bool:
        raise AssertionError("a metaclass was compared")

    def __getattribute__(cls, name: str) -> object:
        raise AssertionError(f"a metaclass was asked for {name}")


def test_a_class_is_asked_nothing() -> None:
    """Whether an object is an array or a text is seen by its type itself."""
    thing = type.__call__(Hostile("Thing", (), {}))
    assert block_of(thing) == 0 and not is_large_text(thing)
    assert block_of(np.zeros(1000)) == 8000 and block_of("x" * 1000) > 1000
