"""Caches of objects that a dataset asks for its samples."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from torch.utils.data import Dataset

from memguard.evidence.host.workers import MAX_PREPARED, asked_caches


class Features:
    """A cache that only grows, one that is bounded, an index, and statistics that the training loop adds to."""

    def __init__(self) -> None:
        self.index = list(range(100))
        self.seen: dict[int, int] = {}
        self.newest: dict[int, int] = {}
        self.losses: list[float] = []

    def get(self, index: int) -> int:
        self.newest[index] = index
        if len(self.newest) > 8:
            self.newest.pop(next(iter(self.newest)))
        return self._read(index)

    def _read(self, index: int) -> int:
        if index not in self.seen:
            self.seen[index] = self.index[index]
        return self.seen[index]

    def add(self, loss: float) -> None:
        self.losses.append(loss)

    @functools.lru_cache(maxsize=None)  # noqa: B019, UP033
    def size(self, index: int) -> int:
        return index

    def __getitem__(self, index: int) -> int:
        return self._read(index)


class Asks(Dataset[int]):
    def __init__(self) -> None:
        self.features = Features()

    def __getitem__(self, index: int) -> int:
        return self._sample(index)

    def _sample(self, index: int) -> int:
        return self.features.get(index)

    def note(self, loss: float) -> None:
        self.features.add(loss)


class AsksByItem(Asks):
    def __getitem__(self, index: int) -> int:
        return self.features[index]


class AsksForSize(Asks):
    def __getitem__(self, index: int) -> int:
        return self.features.size(index)


class Beside(Asks):
    """Reads nothing of it for a sample."""

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize(
    ("kind", "holders"), [(Asks, ["seen"]), (AsksByItem, ["seen"]), (AsksForSize, ["size"]), (Beside, [])]
)
def test_what_an_object_adds_to_for_a_sample_is_a_cache(kind: type[Asks], holders: list[str]) -> None:
    """Whether it is asked by a method or by index; what is bounded, or filled from elsewhere, is none."""
    assert [place.holder for place in asked_caches(kind())] == holders


def test_a_cache_that_was_filled_before_the_workers_is_none_of_theirs() -> None:
    """One look at a sample fills nothing worth speaking of; all of them do."""
    dataset: Any = Asks()
    assert dataset[0] == 0 and len(list(asked_caches(dataset))) == 1
    for index in range(MAX_PREPARED + 1):
        dataset.features.get(index)
    assert not list(asked_caches(dataset))
