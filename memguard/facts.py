"""What probes saw of live objects, as plain data: the evidence that detectors judge beside the records."""

from __future__ import annotations

from dataclasses import dataclass


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
    """The statement, as it stands in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing a probe saw. Each kind is a frozen dataclass of its own, with numbers, texts and places only."""

    batch: int
    """Record number at which it was seen."""
