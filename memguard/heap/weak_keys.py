"""A weak dictionary keyed by identity, whatever ``__eq__`` and ``__hash__`` a user's class defines."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, Generic, TypeVar, final, overload

K = TypeVar("K")
V = TypeVar("V")


@final
class WeakIdentityDict(Generic[K, V]):
    """Values by living object; an entry goes with its object."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry[V]] = {}

    def __setitem__(self, key: K, value: V) -> None:
        entries, number = self._entries, id(key)
        known = entries.get(number)
        if known is not None:
            known.value = value
            return

        def gone(ref: object) -> None:
            entry = entries.get(number)
            if entry is not None and entry.ref is ref:
                del entries[number]

        entries[number] = _Entry(weakref.ref(key, gone), value)

    def __contains__(self, key: object) -> bool:
        return id(key) in self._entries

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V) -> V: ...
    def get(self, key: K, default: V | None = None) -> V | None:
        """The object's value, or the default."""
        entry = self._entries.get(id(key))
        return entry.value if entry is not None else default

    def pop(self, key: K) -> V | None:
        """The object's value, taken out, or None."""
        entry = self._entries.pop(id(key), None)
        return entry.value if entry is not None else None

    def keys(self) -> list[K]:
        """The objects that are alive."""
        return [key for entry in list(self._entries.values()) if (key := entry.ref()) is not None]

    def values(self) -> Iterator[V]:
        """The values of the objects that are alive."""
        return iter([entry.value for entry in list(self._entries.values())])


class _Entry(Generic[V]):
    __slots__ = ("ref", "value")

    def __init__(self, ref: weakref.ref[Any], value: V) -> None:
        self.ref, self.value = ref, value
