"""What a detector is: one rule that concludes from records and facts."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable
from typing import ClassVar

from memguard.facts import Fact
from memguard.findings import Finding
from memguard.stats import BatchRecord, Run


class Detector(ABC):
    """One memory pattern. Sees records and facts, yields findings; no torch, no I/O, never acts.

    So it judges a live run and a saved recording alike. The class docstring of each rule has the parts What, Why it
    matters and How to fix: `memguard explain` and the docs show it.
    """

    code: ClassVar[str]
    """Like ``"MG101"``; never used again for another rule."""
    name: ClassVar[str]
    """Like ``"retained-graph"``."""

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Finding]:
        """Judges one more batch."""
        return ()

    def learn(self, fact: Fact, run: Run) -> Iterable[Finding]:
        """Judges one more fact."""
        return ()

    def finish(self, run: Run) -> Iterable[Finding]:
        """Judges the whole run at its end."""
        return ()
