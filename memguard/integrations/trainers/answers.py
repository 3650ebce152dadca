"""What a Trainer's callback answers about its run."""

from __future__ import annotations

import logging

from memguard.integrations.last_word import closing_text
from memguard.integrations.session import Session
from memguard.options import disabled
from memguard.records.findings import Finding
from memguard.records.stats import BatchRecord
from memguard.records.summary import Summary
from memguard.report.page import summary_html
from memguard.report.text import render
from memguard.sinks.console import print_text

logger = logging.getLogger("memguard")

_ELSEWHERE = (
    "nothing was recorded in this process. Ranks that ran as other processes (ddp_fork, ddp_spawn, ddp_notebook, "
    "notebook_launcher) left their own recordings: `memguard report DIR` reads them, with the directory that was given "
    "as logdir=, else the one that rank 0 named at its end"
)


class Answers:
    """The part that the callbacks of all Trainers have in common."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._session: Session | None = None
        self._summary = Summary(notes=[_ELSEWHERE])
        self._records: list[BatchRecord] = []
        self._failed: set[str] = set()

    def result(self) -> Summary:
        """The run so far, or the last one, as numbers."""
        return self._summary if self._session is None else self._session.so_far()

    @property
    def records(self) -> list[BatchRecord]:
        """The newest records of the run, or of the last one (at most 4096), oldest first."""
        return list(self._session.recorder.records) if self._session is not None else self._records

    @property
    def findings(self) -> list[Finding]:
        """All findings of the run so far, or of the last one."""
        return list(self.result().findings)

    def summary(self) -> str:
        """The run so far, or the last one, in plain words; without any in this process, where else to look."""
        if self._session is None and self._summary.ended is None:
            return "memguard is disabled (MEMGUARD_DISABLE)." if disabled() else f"memguard: {_ELSEWHERE}."
        return render(self.result())

    def _repr_html_(self) -> str:
        """What a notebook shows for a cell that ends with the callback."""
        has_run = self._session is not None or self._summary.ended is not None
        return summary_html(self.result()) if has_run else f"<p>{self.summary()}</p>"

    def part_failed(self, name: str, error: Exception) -> None:
        """Something raised where the Trainer calls us."""
        if self._session is not None:
            self._session.recorder.failed(name, error)
        elif name not in self._failed:
            self._failed.add(name)
            logger.error("memguard's %s failed and does nothing: %s: %s", name, type(error).__name__, error)

    def _conclude(self, session: Session) -> None:
        """Keeps what a closed session knows, and prints it."""
        self._summary = session.recorder.summary
        self._records = list(session.recorder.records)
        if not self._quiet and (text := closing_text(session.launch, self._summary)) is not None:
            print_text(text)
