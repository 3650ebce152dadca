"""`memguard.allow`: say in the code that something is meant, and memguard stays silent about it there."""

from __future__ import annotations

from types import TracebackType
from typing import final

GRAD = "grad"

_open: dict[str, int] = {}
"""Names in force now."""
lately: set[str] = set()
"""Names in force at any time since the recorder last asked (`allowed_lately`)."""


@final
class allow:
    """A block of code in which something memguard would object to is meant.

    Args:
        *names: Rule codes or names to silence for the batches that this block touches, like ``"MG201"`` or
            ``"eval-graph"``; ``"grad"`` lets forwards in eval mode build a graph though validation is guarded.

    Raises:
        ValueError: No name was given.
        TypeError: A name is not a text.
    """

    def __init__(self, *names: str) -> None:
        if not names:
            raise ValueError('memguard.allow needs at least one name, like allow("MG201") or allow("grad")')
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"memguard.allow takes rule codes or names as text, got {name!r}")
        self._names = names

    def __enter__(self) -> None:
        for name in self._names:
            _open[name] = _open.get(name, 0) + 1
            lately.add(name)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for name in self._names:
            _open[name] -= 1
            if not _open[name]:
                del _open[name]


def allowed(name: str) -> bool:
    """Whether a block that allows this name is open now."""
    return name in _open


def allowed_lately() -> frozenset[str]:
    """The names allowed at any time since the last call, those of open blocks included."""
    if not lately:
        return frozenset()
    names = frozenset(lately)
    lately.intersection_update(_open)
    return names
