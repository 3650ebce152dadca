"""Elements are read past what a subclass of a container defines."""

import collections
from collections.abc import Iterator
from typing import Any

from memguard.heap.containers import all_of


class Loud(list[int]):
    """Must not be asked."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("ran code of the user's")


def test_every_element_of_a_container_is_read() -> None:
    """However long it is; of a dict its values, and nothing of what is no container."""
    many = range(200)
    assert all_of(Loud(many)) == all_of(collections.deque(many)) == all_of(tuple(many)) == list(many)
    assert all_of({str(number): number for number in many}) == all_of(collections.UserList(many)) == list(many)
    assert all_of(7) == []
