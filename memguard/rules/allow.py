"""`memguard.allow`: say in the code that something is meant, and memguard stays silent about it there."""

from __future__ import annotations

import functools
from types import TracebackType
from typing import final

from memguard.allowing import GRAD, begin, end
from memguard.options import disabled
from memguard.rules import ALL_RULES
from memguard.rules.selection import codes_of


@final
class allow:
    """A block of code in which something memguard would object to is meant.

    Args:
        *names: Rule codes or names to silence for the batches that this block touches, like ``"MG201"``,
            ``"eval-graph"`` or ``"MG3"``; ``"grad"`` lets forwards in eval mode build a graph though validation is
            guarded.

    Raises:
        ValueError: No name was given, or one that is no rule's; the text names the valid ones.
        TypeError: A name is not a text.
    """

    def __init__(self, *names: str) -> None:
        if not names:
            raise ValueError('memguard.allow needs at least one name, like allow("MG201") or allow("grad")')
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"memguard.allow takes rule codes or names as text, got {name!r}")
        try:
            self._codes = frozenset().union(*map(_codes, names))
        except ValueError as error:
            if not disabled():  # else it is a no-op, as everything is
                raise ValueError(f'memguard.allow: {error}, and "grad"') from None
            self._codes = frozenset()

    def __enter__(self) -> None:
        begin(self._codes)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        end(self._codes)


@functools.lru_cache(maxsize=256)
def _codes(name: str) -> frozenset[str]:
    return frozenset({GRAD}) if name.strip().lower() == GRAD else codes_of(ALL_RULES, [name])
