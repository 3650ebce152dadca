"""MG703: pinned host memory grows, in PyTorch's cache or in user code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, final

from memguard.records.claims import Claim
from memguard.records.facts import Fact, KeptOnHost, PinnedCacheGrows
from memguard.records.findings import Severity
from memguard.records.stats import BatchRecord, Run
from memguard.rules.finding_text import holder
from memguard.rules.host_room import SampledGrowth, free_bytes
from memguard.rules.host_room import left as told_left
from memguard.rules.interface import READINGS, Rule
from memguard.text.units import format_bytes


@final
class PinnedGrowth(Rule):
    """Pinned host memory grows.

    What: PyTorch's cache of pinned memory rises without falling again, or a container keeps pinned tensors of batch
    after batch.

    Why it matters: pinned blocks are rounded up to powers of two and kept. With sizes that vary, the cache holds a
    block for every size, and nothing of it can be swapped.

    How to fix: a smaller ``prefetch_factor``, inputs of fixed sizes, ``pin_memory=False`` where copies are not the
    bottleneck; ``torch.accelerator.empty_host_cache()`` where it exists.
    """

    code: ClassVar[str] = "MG703"
    name: ClassVar[str] = "pinned-growth"
    hears: ClassVar[int] = READINGS

    def __init__(self) -> None:
        self._sampled = SampledGrowth()
        self._named = False

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """A container that keeps pinned tensors; or a cache that held more at each look."""
        free = free_bytes(run.slow)
        if isinstance(fact, KeptOnHost) and fact.pinned and not fact.bounded:
            self._named = True
            left = run.batches_left
            fills = free is not None and left is not None and fact.bytes_per_batch * left > free
            yield self.claim(
                fact,
                Severity.WARNING if fills else Severity.INFO,
                f"{holder(fact.place)} keeps pinned tensors of {format_bytes(fact.bytes_per_batch)} more with every "
                f"batch: nothing of that can be swapped{told_left(free)}.",
                "keep ordinary tensors and pin each batch just before its copy, or bound how many are kept.",
                nbytes=fact.bytes,
                bytes_per_batch=fact.bytes_per_batch,
                since=fact.first_batch,
            )
        elif isinstance(fact, PinnedCacheGrows) and not self._named:
            yield self.claim(
                fact,
                Severity.INFO,
                f"the cache of pinned host memory grew from {format_bytes(fact.before_bytes)} to "
                f"{format_bytes(fact.bytes)} since batch {fact.since_batch}, of which "
                f"{format_bytes(fact.active_bytes)} are in use: it keeps a block for every size{told_left(free)}.",
                "give batches a fixed size, lower prefetch_factor, or switch pin_memory off.",
                nbytes=fact.bytes,
                since=fact.since_batch,
            )

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Claim]:
        """Judges each new reading."""
        slow = run.slow
        rate = self._sampled.grows(slow, slow.pinned_bytes, record)
        if rate is None:
            return
        yield self.claim(
            record,
            Severity.WARNING,
            f"pinned host memory grows by {format_bytes(rate)} a second, to {format_bytes(slow.pinned_bytes)} now, "
            f"of which {format_bytes(slow.pinned_active_bytes)} are in use.",
            "lower prefetch_factor, give batches a fixed size, or switch pin_memory off.",
            nbytes=slow.pinned_bytes,
            since=self._sampled.since,
        )
