"""What a sink is: somewhere records and findings go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from memguard.records.findings import Finding
from memguard.records.stats import Run, Series


class Sink(ABC):
    """Writes what it is given, somewhere. An error switches the sink off, never the training."""

    def records(self, records: Series, run: Run) -> None:  # noqa: B027 - some tell findings alone
        """Some more batches that are alike, one or up to 256; every batch pays for it, so it must be cheap."""

    @abstractmethod
    def finding(self, finding: Finding) -> None:
        """A new finding, or the newer state of one told before (same cause, higher count)."""

    def phase(self, name: str, allocated_peak_bytes: int, batch: int) -> None:  # noqa: B027 - a curve, where there are any
        """The highest peak of the newest phases of a name, the last of which ended in a batch."""

    def conclude(self, findings: Sequence[Finding]) -> None:  # noqa: B027 - who prints as they come has told them
        """The run is over: all its findings, as they are at the end."""

    def out_of_memory(self, report: str, batch: int) -> None:  # noqa: B027 - the console has the traceback's note
        """The run ran out of memory; the report is Markdown."""

    @abstractmethod
    def close(self) -> None:
        """The run is over; writes what is left."""
