"""One finding for each cause: the first is told, later ones are counted, a worse or much larger one takes its place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import final

from memguard.allowing import allowed
from memguard.findings import Finding

LARGER = 2
"""A cause that holds so many times what it held when it was told is told anew in the summary."""


@final
class Causes:
    """All findings of a run, each cause once.

    Args:
        silenced: Codes of rules and acts whose findings are dropped.
    """

    def __init__(self, silenced: Iterable[str] = ()) -> None:
        self.findings: dict[tuple[str, str | None, int | None, str | None], Finding] = {}
        """By their cause, in the order in which they were found."""
        self.allowed: frozenset[str] = frozenset()
        """Rules that the program itself allows for the batches that are judged now (`memguard.allow`)."""
        self._silenced = frozenset(silenced)

    def add(self, finding: Finding) -> Finding | None:
        """Takes a finding in; returns what is to be told of it now, None if nothing."""
        if finding.code in self._silenced or finding.code in self.allowed or allowed(finding.code):
            return None
        known = self.findings.get(finding.cause)
        if known is None:
            self.findings[finding.cause] = finding
            return finding
        worse = known.severity < finding.severity
        newest = finding if worse else known
        if known.severity is finding.severity and (finding.bytes or 0) >= LARGER * (known.bytes or 1):
            # The summary tells how bad it has become, and still when it began.
            newest = replace(finding, stage=known.stage, epoch=known.epoch, batch=known.batch)
        self.findings[finding.cause] = newest = replace(newest, count=known.count + finding.count)
        return newest if worse else None
