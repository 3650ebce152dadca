"""The interface of a rule."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable
from typing import ClassVar

from memguard.records.claims import Claim, Evidence
from memguard.records.facts import NOWHERE, Fact, Place
from memguard.records.findings import Severity
from memguard.records.stats import BatchRecord, Run, Series

EVERY, PEAKS, READINGS, CROWDED, RETRIES, DEVICE = 0, 1, 2, 4, 8, 16
"""What a rule hears of: every record; a new highest allocated peak; a new reading of the slow lane; a device that is
nearly full, and the first record after; retries of the allocator; each record of a device that tells what it holds.
Each batch pays for each rule that hears it."""


_OF_FRAME = (
    "do not keep the frame, for it keeps every variable of its function: store what is read of it, like "
    "frame.f_lineno and frame.f_code.co_name."
)


class Rule(ABC):
    """One memory pattern. Sees records and facts, yields findings; no torch, no I/O, never acts.

    So it judges a live run and a saved recording alike. The class docstring of each rule has the parts What, Why it
    matters and How to fix: `memguard explain` and the docs show it. Its header has the rest, like
    ``class Fragmentation(Rule, code="MG401", name="fragmentation", hears=CROWDED)``.
    """

    code: ClassVar[str]
    """Like ``"MG101"``; never used again for another rule."""
    name: ClassVar[str]
    """Like ``"retained-graph"``."""
    hears: ClassVar[int] = EVERY
    """The records that can tell this rule anything; it must not mind to be shown others."""

    evidence: ClassVar[Evidence] = Evidence.OTHER
    """What kind of memory its claims are about, where they do not say it themselves."""

    def __init_subclass__(
        cls, code: str = "", name: str = "", hears: int = EVERY, evidence: Evidence = Evidence.OTHER
    ) -> None:
        super().__init_subclass__()
        if code:  # else it stands for another rule, whose it takes
            cls.code, cls.name, cls.hears, cls.evidence = code, name, hears, evidence

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

    def claim(
        self,
        seen: Fact | BatchRecord,
        severity: Severity,
        message: str,
        advice: str,
        *,
        nbytes: int | None = None,
        bytes_per_batch: float | None = None,
        name: str | None = None,
        evidence: Evidence | None = None,
        count: int = 1,
        since: int | None = None,
        batches_left: int | None = None,
        is_limited: bool = False,
        ends: bool = False,
        names: tuple[str, ...] = (),
        place: Place = NOWHERE,
    ) -> Claim:
        """A claim at the place of a fact, or one that rests on the records alone; whoever runs the rule adds the rank.

        Args:
            seen: The evidence.
            severity: How much it matters.
            message: What happened and why it matters.
            advice: The fix.
            nbytes: Bytes it concerns.
            bytes_per_batch: How fast they grow.
            name: The holder, where it is not that of the fact's place.
            evidence: What kind of memory it is about, if it is not that of the rule.
            count: Graphs, tensors or copies that it tells of.
            since: Batch from which on they came.
            batches_left: Batches to come that bring more, where known.
            is_limited: Whether it will never be more than there is room for.
            ends: Whether it is let go where the pass over the data ends.
            names: Other names that hold the same memory.
            place: Where batches are made, of a record.
        """
        epoch = seen.epoch if isinstance(seen, BatchRecord) else None
        if isinstance(seen, Fact):
            place, name = seen.place, name or seen.place.holder
        return Claim(
            code=self.code,
            name=self.name,
            severity=severity,
            message=message,
            advice=_OF_FRAME if place.in_frame else advice,
            file=place.file,
            line=place.line,
            function=place.function,
            holder=name,
            stage=seen.stage,
            epoch=epoch,
            batch=seen.batch,
            bytes=nbytes,
            bytes_per_batch=bytes_per_batch,
            evidence=evidence or self.evidence,
            count=count,
            since=since,
            batches_left=batches_left,
            is_limited=is_limited,
            ends=ends,
            is_final=isinstance(seen, Fact) and seen.final,
            names=names,
        )
