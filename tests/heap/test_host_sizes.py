"""What an object takes of the host's memory, by estimate."""

from __future__ import annotations

import collections
import io

import numpy as np
import pytest
import torch

from memguard.heap.containers import latest_of, newest_of
from memguard.heap.host_sizes import host_size, is_from_worker, size_of


class Sample:
    """An object of the user's that must not be asked anything."""

    def __init__(self) -> None:
        self.pixels = np.zeros(1000, dtype=np.float32)

    def __getattr__(self, name: str) -> object:
        raise AssertionError(name)

    def __len__(self) -> int:
        raise AssertionError

    def __sizeof__(self) -> int:
        raise AssertionError


@pytest.mark.parametrize(
    ("value", "nbytes"),
    [
        (np.zeros((100, 100)), 80_000),
        (torch.zeros(100, 100), 40_000),
        (torch.zeros(100, 100)[0], 40_000),
        (np.zeros((100, 100))[:10, :10], 80_000),
        (b"a" * 5000, 5_000),
        (io.BytesIO(b"a" * 5000), 5_000),
        ([float(i) for i in range(1000)], 32_000),
        ({"a": np.zeros(500), "b": [np.zeros(500)] * 9}, 8_000),
        ([[0.5 + i + j for i in range(100)] for j in range(300)], 960_000),
        (
            [{"id": f"{i:020d}", "boxes": [[0.5 + i + j for j in range(7)] for _ in range(4)]} for i in range(500)],
            750_000,
        ),
    ],
)
def test_a_size_is_estimated_within_a_tenth(value: object, nbytes: int) -> None:
    """Arrays, tensors with all of their storage, bytes, numbers, nests of them; each object once."""
    assert nbytes * 0.9 <= size_of(value) <= nbytes * 1.1 + 700


def test_what_lies_beside_an_object_too_is_not_counted() -> None:
    """A row of a table that others show rows of, and what another object has as well, are not kept by this one."""
    table = np.zeros((100, 100))
    assert size_of(table[0]) < 1_000
    assert host_size([table, np.zeros(500)], beside=[table]).bytes <= 4_200


def test_an_object_of_the_users_is_asked_nothing() -> None:
    """Its attributes count, none of its methods runs."""
    assert 4_000 <= size_of(Sample()) <= 5_000


def test_the_newest_element_is_the_last_one() -> None:
    """Of lists, dictionaries and queues; of a set it is any."""
    assert newest_of([1, 2]) == newest_of({"a": 1, "b": 2}) == newest_of(collections.deque([1, 2])) == 2
    assert newest_of([]) is newest_of({}) is newest_of(set()) is None
    assert newest_of({1, 2}) in (1, 2)
    assert latest_of([1, 2, 3, 4, 5]) == latest_of((1, 2, 3, 4, 5)) == (5, 4, 3, 2)


def test_tensors_in_shared_memory_are_those_of_workers() -> None:
    """Also in a batch's dictionary, and as a view."""
    shared = torch.zeros(8).share_memory_()
    assert is_from_worker({"x": [shared[2]]})
    assert not is_from_worker({"x": [torch.zeros(8)]})


class Node:
    """A tree of Python objects."""

    def __init__(self, depth: int) -> None:
        self.name, self.children = f"node {depth}", [Node(depth - 1) for _ in range(3)] if depth else []


def test_objects_are_counted_below_what_is_short() -> None:
    """Few trees of many nodes; an array or a tensor is one object, however much it holds."""
    trees = [Node(4) for _ in range(20)]
    nodes = 20 * sum(3**level for level in range(5))
    assert nodes < host_size(trees).objects < 5 * nodes
    assert host_size([torch.zeros(1000) for _ in range(50)]).objects == 51
