"""What DataLoader workers copy or cache: named by the dataset's attribute."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from memguard.evidence.host.datasets import place_of_attribute
from memguard.evidence.host.fetching import Fetching
from memguard.evidence.host.workers import WorkersProbe
from memguard.records.facts import WorkerObjects
from tests.evidence.loop import Loop


class Listed(Dataset[Any]):
    """A long list of Python objects, and two caches that only grow, one of them the class's."""

    read: dict[int, int] = {}  # noqa: RUF012

    def __init__(self) -> None:
        self.items = [{"box": [i, i + 1]} for i in range(40_000)]  # a list
        self.few = [str(i) for i in range(10)]
        self.cache: dict[int, torch.Tensor] = {}

    def __len__(self) -> int:
        return 40_000

    def __getitem__(self, index: int) -> torch.Tensor:
        self.read[index] = 1
        if index not in self.cache:
            self.cache[index] = torch.tensor(self.items[index]["box"], dtype=torch.float32)  # a cache
        return self.cache[index]


class Remembers:
    """A method that remembers every answer, and one that forgets."""

    @functools.lru_cache(maxsize=None)  # noqa: B019, UP033
    def read(self, index: int) -> int:
        return index

    @functools.lru_cache(maxsize=8)  # noqa: B019
    def peek(self, index: int) -> int:
        return index


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("workers", [1, 0])
def test_a_dataset_that_workers_read_is_looked_at(workers: int) -> None:
    """The list by its size, the cache by the statement that fills it; without workers nothing is copied."""
    model = nn.Linear(2, 1)
    batches = iter(DataLoader(Listed(), batch_size=4, num_workers=workers))
    with Loop(model, kinds=[WorkersProbe]) as loop:
        for _ in loop.batches(6):
            model(next(batches))
    told = {fact.place.holder: fact for fact in loop.of(WorkerObjects)}
    assert set(told) == ({"items", "cache", "read"} if workers else set())
    if workers:
        assert told["items"].workers == 1 and told["items"].bytes > 4_000_000 and not told["items"].grows
        assert told["cache"].grows and "self.cache[index] =" in (told["cache"].place.source or "")


class Pages:
    """An object that a dataset asks for its samples, with a cache, and a list that only its maker fills."""

    def __init__(self) -> None:
        self.cache: dict[int, float] = {}
        self.names: list[str] = []

    def scan(self) -> None:
        self.names.append("page")

    def get(self, index: int) -> float:
        if index not in self.cache:
            self.cache[index] = float(index)
        return self.cache[index]


DECODED: dict[int, float] = {}
LOSSES: list[float] = []


def decode(index: int) -> float:
    """Fills a cache of the module."""
    DECODED[index] = DECODED.get(index) or float(index)
    return DECODED[index]


@functools.cache
def header(index: int) -> int:
    """Remembers every answer."""
    return index


def log(loss: float) -> None:
    """What the training loop calls, and no dataset."""
    LOSSES.append(loss)


class Asks(Dataset[Any]):
    """Has its samples from another object and from functions of the module."""

    def __init__(self) -> None:
        self.pages = Pages()
        self.pages.scan()

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([self.pages.get(index), decode(header(index))])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_caches_of_what_a_dataset_asks_are_told() -> None:
    """Those that fetching a sample fills; not what its maker or the training loop fills."""
    model = nn.Linear(2, 1)
    batches = iter(DataLoader(Asks(), batch_size=4, num_workers=1, sampler=range(40)))
    with Loop(model, kinds=[WorkersProbe]) as loop:
        for _ in loop.batches(6):
            model(next(batches))
            log(0.0)
    assert {fact.place.holder for fact in loop.of(WorkerObjects)} == {"cache", "DECODED", "header"}


def test_a_method_that_remembers_everything_is_a_cache() -> None:
    """Only the one without a bound, and only if a sample needs it."""

    class Reads(Remembers):
        def __getitem__(self, index: int) -> int:
            return self.read(index) + self.peek(index)

    assert [place.holder for place in Fetching(Reads()).remembered] == ["read"]
    assert not Fetching(Remembers()).remembered


def test_an_attribute_filled_once_does_not_grow() -> None:
    """What `__init__` stores is placed, and is no cache."""
    place, grows = place_of_attribute(Listed(), "items")
    assert (place.source or "").startswith("self.items = [") and not grows
