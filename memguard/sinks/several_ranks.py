"""Findings of many ranks on one terminal, without repetition."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import final

from memguard.clocks import monotonic
from memguard.recording.format import FOLDER
from memguard.recording.reader import Recording
from memguard.records.findings import Finding, Severity
from memguard.records.stats import Run, Series
from memguard.sinks.interface import Sink

PATIENCE_SECONDS = 3.0
"""Ranks of one run find the same within a batch or two."""


@final
class OnlyHere(Sink):
    """Passes on what rank 0 and the rank before this one have not found themselves; what is critical, at once.

    Args:
        sink: Where to, on a rank other than 0.
        logdir: The run's directory, where the other ranks' recordings lie.
        rank: This process's rank.
        clock: Seconds that only grow; tests bring their own.
    """

    def __init__(self, sink: Sink, logdir: Path, rank: int, *, clock: Callable[[], float] = monotonic) -> None:
        self._sink, self._folder, self._rank, self._clock = sink, logdir / FOLDER, rank, clock
        self._waiting: list[tuple[float, Finding]] = []

    def records(self, records: Series, run: Run) -> None:
        """Passes on findings that waited long enough."""
        if self._waiting and self._clock() - self._waiting[0][0] > PATIENCE_SECONDS:
            self._pass_on()

    def finding(self, finding: Finding) -> None:
        """Keeps the finding until the others had the time to find it too."""
        if finding.severity is Severity.CRITICAL:
            self._sink.finding(finding)
        else:
            self._waiting.append((self._clock(), finding))

    def close(self) -> None:
        """Passes on the rest."""
        self._pass_on()
        self._sink.close()

    def _pass_on(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        known = {finding.cause for rank in {0, self._rank - 1} for finding in self._findings_of(rank)}
        for _, finding in waiting:
            if finding.cause not in known:
                self._sink.finding(finding)

    def _findings_of(self, rank: int) -> list[Finding]:
        """What another rank has found so far; nothing where its recording cannot be read here."""
        newest = max(self._folder.glob(f"rank{rank:05d}-*.bin"), key=lambda path: path.stem, default=None)
        try:
            return Recording.open(newest).findings if newest is not None else []
        except Exception:  # another process is writing it, or its disk is not ours
            return []
