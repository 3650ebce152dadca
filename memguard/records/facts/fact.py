"""The base of every fact: its batch, its stage, its place in the user's code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from memguard.records.stats import Stage

Line: TypeAlias = tuple[str | None, int | None]
"""Its file and its number."""
NEAR = 3
"""Lines between the beginnings of two statements that fill attributes of one object together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A line of the user's code, and the name that holds something there."""

    file: str | None = None
    """Absolute path."""
    line: int | None = None
    function: str | None = None
    holder: str | None = None
    """Like ``history`` or ``LitModel.outputs``."""
    source: str | None = None
    """The statement that keeps it, as it stands in the file."""
    caller: str | None = None
    """Where the training loop calls the function that it stands in, like ``train.py:41``, where that was found."""
    caller_function: str | None = None
    """The function that makes that call, like ``Layer.forward``."""
    also: tuple[int, ...] = field(default=(), compare=False)
    """Further lines of that function which add to the same holder."""
    in_frame: bool = False
    """Whether what it holds are the variables of a kept frame."""

    @property
    def where(self) -> Line:
        """The file and the line, to compare."""
        return self.file, self.line

    def is_beside(self, other: Place) -> bool:
        """Whether a statement next to the other's does the same for another name of the same owner."""
        if self.line is None or other.line is None or self.holder == other.holder or not (self.holder and other.holder):
            return False
        owner, other_owner = self.holder.rpartition(".")[0], other.holder.rpartition(".")[0]
        same = (self.file, self.function, owner) == (other.file, other.function, other_owner)
        return same and 0 < abs(self.line - other.line) <= (NEAR if owner else 1)


NOWHERE = Place()
"""The place of what could not be named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing a probe saw. Each kind is a frozen dataclass of its own, with numbers, texts and places only."""

    batch: int
    """Record number at which it was seen."""
    stage: Stage = Stage.OTHER
    place: Place = NOWHERE
    """Where the user's code causes it, as far as it was found."""
    estimated: bool = False
    """Whether its numbers were carried on from the last look, of what does not come with every batch."""
    final: bool = False
    """Whether it was counted when the run was over: then it replaces estimates, higher ones too."""

    @property
    def kept_bytes(self) -> int:
        """What its holder keeps; 0 where it says no size."""
        return getattr(self, "bytes", None) or 0
