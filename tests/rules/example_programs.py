"""The programs of a rule's example: before the difference that is shown, and after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from memguard.rules.explanation import differences, setup


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


def example_of(code: str) -> Example:
    """The example of a rule."""
    return Example(setup=setup(), difference=differences([code])[code])
