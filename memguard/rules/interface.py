"""The interface of a rule."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable
from typing import ClassVar

from memguard.records.claims import Claim
from memguard.records.facts import Fact
from memguard.records.stats import BatchRecord, Run, Series

EVERY, PEAKS, READINGS, CROWDED, RETRIES, DEVICE = 0, 1, 2, 4, 8, 16
"""What a rule hears of: every record; a new highest allocated peak; a new reading of the slow lane; a device that is
nearly full, and the first record after; retries of the allocator; each record of a device that tells what it holds.
Each batch pays for each rule that hears it."""


class Rule(ABC):
    """One memory pattern. Sees records and facts, yields findings; no torch, no I/O, never acts.

    So it judges a live run and a saved recording alike. The class docstring of each rule has the parts What, Why it
    matters and How to fix: `memguard explain` and the docs show it.
    """

    code: ClassVar[str]
    """Like ``"MG101"``; never used again for another rule."""
    name: ClassVar[str]
    """Like ``"retained-graph"``."""
    hears: ClassVar[int] = EVERY
    """The records that can tell this rule anything; it must not mind to be shown others."""

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Claim]:
        """Judges one more batch, of those that it hears of."""
        return ()

    def observe_alike(self, records: Series, run: Run) -> Iterable[Claim]:
        """Judges some that are alike, as `observe` would one by one; who hears of every batch does it faster."""
        for record in records:
            yield from self.observe(record, run)

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Judges one more fact."""
        return ()

    def finish(self, run: Run) -> Iterable[Claim]:
        """Judges the whole run at its end."""
        return ()
