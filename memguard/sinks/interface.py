"""What a sink is: somewhere records and findings go."""

from __future__ import annotations

from abc import ABC, abstractmethod

from memguard.findings import Finding
from memguard.stats import Run, Series


class Sink(ABC):
    """Writes what it is given, somewhere. An error switches the sink off, never the training."""

    def records(self, records: Series, run: Run) -> None:  # noqa: B027 - some tell findings alone
        """Some more batches that are alike, one or up to 256; every batch pays for it, so it must be cheap."""

    @abstractmethod
    def finding(self, finding: Finding) -> None:
        """A new finding, or the newer state of one told before (same cause, higher count)."""

    def out_of_memory(self, report: str, batch: int) -> None:  # noqa: B027 - the console has the traceback's note
        """The run ran out of memory; the report is Markdown."""

    @abstractmethod
    def close(self) -> None:
        """The run is over; writes what is left."""
