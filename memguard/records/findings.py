"""Findings: what memguard reports, one for each cause."""

from __future__ import annotations

import enum
from dataclasses import asdict, dataclass
from typing import Any

from memguard.records.stats import Stage
from memguard.text.terminal import one_line


class Severity(enum.Enum):
    """How much a finding matters; ordered."""

    INFO = "info"
    """Worth knowing."""
    WARNING = "warning"
    """Wastes memory that matters on this device."""
    CRITICAL = "critical"
    """The run will fail, or has failed, because of it."""

    def __lt__(self, other: Severity) -> bool:
        order = tuple(Severity)
        return order.index(self) < order.index(other)

    def __le__(self, other: Severity) -> bool:
        return self is other or self < other

    def __gt__(self, other: Severity) -> bool:
        return other < self


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cause of wasted memory or trouble, or one act of memguard's own."""

    code: str
    """Rule, like ``"MG101"``; MG0xx are memguard's own acts."""
    name: str
    """The rule's name, like ``"retained-graph"``."""
    severity: Severity
    """How much it matters."""
    message: str
    """What happened, with numbers and the line, and why it matters."""
    advice: str
    """The fix."""
    file: str | None = None
    """Absolute path of the program's file that is to blame; None where none is."""
    line: int | None = None
    """Line in the file; None where no line is to blame."""
    function: str | None = None
    """Function that the line is in."""
    holder: str | None = None
    """The variable or attribute that holds the memory, like ``history`` or ``LitModel.outputs``."""
    stage: Stage = Stage.OTHER
    """Stage in which it was found."""
    epoch: int | None = None
    """Epoch in which it was found."""
    batch: int = 0
    """Record number at which it was found."""
    since: int | None = None
    """Record number from which on its memory came, at or before the one at which it was found; None where unknown."""
    bytes: int | None = None
    """What this cause holds; None where it cannot be measured."""
    bytes_per_batch: float | None = None
    """By how much that grows with each batch; None where it does not."""
    count: int = 1
    """How often this cause was seen."""
    rank: int = 0
    """The process that found it."""
    phase: str | None = None
    """The phase in which the batch began that showed it first (`memguard.phase`); None where the program names none."""

    def __post_init__(self) -> None:
        """Names of the user's come into these texts, and findings are read from strangers' files: one line each."""
        for name in ("message", "advice", "function", "holder", "phase"):
            text = getattr(self, name)
            if isinstance(text, str) and not (text.isascii() and text.isprintable()):
                object.__setattr__(self, name, one_line(text))

    @property
    def text(self) -> str:
        """The message, with the phase in which it was found and since when."""
        return f"{self.message} In phase `{self.phase}`, since batch {self.batch}." if self.phase else self.message

    @property
    def cause(self) -> tuple[str, str | None, int | None, str | None]:
        """What makes two findings one: rule, place and holder."""
        return (self.code, self.file, self.line, self.holder)

    def to_json(self) -> dict[str, Any]:
        """The finding under the keys of the report's JSON contract."""
        return {**asdict(self), "severity": self.severity.value, "stage": self.stage.value}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Finding:
        """The finding that `to_json` wrote; unknown keys are left out.

        Raises:
            ValueError, TypeError, KeyError: The data is not a finding.
        """
        known = {key: value for key, value in data.items() if key in cls.__dataclass_fields__ and value is not None}
        known["severity"] = Severity(known["severity"])
        known["stage"] = Stage(known.get("stage", Stage.OTHER.value))
        return cls(**known)
