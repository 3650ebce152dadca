"""The example of each rule: a program before and after, kept as a difference in examples.md."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A short program that a rule reports, and what to write instead."""

    setup: str
    """What all examples begin with: imports, a model, an optimizer, a loader."""
    difference: str
    """The program behind it; lines begin with ``-`` (before), ``+`` (after) or a space (both)."""

    @property
    def before(self) -> str:
        """The program that the rule reports."""
        return self._program("-")

    @property
    def after(self) -> str:
        """The program that the rule does not report."""
        return self._program("+")

    @property
    def changed_lines(self) -> tuple[int, ...]:
        """The lines of `before`, from 1, that `after` does not have."""
        kept = [line for line in self.difference.splitlines() if not line.startswith("+")]
        first = len(self.before.splitlines()) - len(kept) + 1
        return tuple(number for number, line in enumerate(kept, first) if line.startswith("-"))

    def _program(self, sign: str) -> str:
        lines = [line[1:] for line in self.difference.splitlines() if line[:1] in ("", " ", sign)]
        head = [line for line in lines if line.startswith("# ")]
        return "\n".join([*head, self.setup, *(line for line in lines if line not in head), ""])


def setup() -> str:
    """What all examples begin with: imports, a model, an optimizer, a loader."""
    return _read()[0]


def example_of(code: str) -> Example:
    """The example of a rule.

    Args:
        code: Like ``"MG101"``.

    Raises:
        KeyError: There is none.
    """
    return Example(setup=setup(), difference=_read()[1][code])


def differences(codes: Iterable[str]) -> dict[str, str]:
    """The examples of some rules as differences, by code; memguard's own acts and unknown codes have none."""
    known = _read()[1]
    return {code: known[code] for code in codes if code in known}


@functools.lru_cache(maxsize=1)
def _read() -> tuple[str, dict[str, str]]:
    text = Path(__file__).with_name("examples.md").read_text(encoding="utf-8")
    setup = re.search(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert setup is not None
    return setup[1], dict(re.findall(r"^## (MG\d+)\n\n```diff\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
