"""A weak dictionary keyed by the object itself, whatever __eq__ and __hash__ a user's module defines."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, Generic, TypeVar, final

K = TypeVar("K")
V = TypeVar("V")


@final
class WeakIdentityDict(Generic[K, V]):
    """Values by living object; an entry goes with its object."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], V]] = {}

    def __setitem__(self, key: K, value: V) -> None:
        entries, number = self._entries, id(key)

        def gone(ref: object) -> None:
            entry = entries.get(number)
            if entry is not None and entry[0] is ref:
                del entries[number]

        entries[number] = weakref.ref(key, gone), value

    def __contains__(self, key: object) -> bool:
        return id(key) in self._entries

    def get(self, key: K) -> V | None:
        """The object's value, or None."""
        entry = self._entries.get(id(key))
        return entry[1] if entry is not None else None

    def pop(self, key: K) -> V | None:
        """The object's value, taken out, or None."""
        entry = self._entries.pop(id(key), None)
        return entry[1] if entry is not None else None

    def keys(self) -> list[K]:
        """The objects that are alive."""
        return [key for ref, _ in list(self._entries.values()) if (key := ref()) is not None]

    def values(self) -> Iterator[V]:
        """The values of the objects that are alive."""
        return iter([value for _, value in list(self._entries.values())])
