"""Codes that the program allows right now: the open blocks of `memguard.allow`."""

from __future__ import annotations

from collections.abc import Iterable

GRAD = "grad"

_open: dict[str, int] = {}
"""Codes in force now."""
lately: set[str] = set()
"""Codes in force at any time since the recorder last asked (`allowed_lately`)."""


def begin(codes: Iterable[str]) -> None:
    """A block that allows these is entered."""
    for code in codes:
        _open[code] = _open.get(code, 0) + 1
        lately.add(code)


def end(codes: Iterable[str]) -> None:
    """A block that allows these is left."""
    for code in codes:
        _open[code] -= 1
        if not _open[code]:
            del _open[code]


def allowed(code: str) -> bool:
    """Whether a block that allows this is open now."""
    return code in _open


def allowed_lately() -> frozenset[str]:
    """The codes allowed at any time since the last call, those of open blocks included."""
    if not lately:
        return frozenset()
    codes = frozenset(lately)
    lately.intersection_update(_open)
    return codes
