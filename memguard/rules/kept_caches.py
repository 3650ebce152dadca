"""Caches on the device whose keys do not come again: what MG501 says about them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import final

from memguard.records.claims import Claim, Evidence
from memguard.records.facts import Fact, KeptOutputs
from memguard.records.findings import Severity
from memguard.records.stats import Run, Stage
from memguard.rules.finding_text import holder, in_memory, so_far
from memguard.rules.growth_test import Outlook
from memguard.rules.interface import Rule
from memguard.rules.kept_storage import MIN_BATCHES, cause_of, is_pile, never_stops, what_is_kept, who_keeps
from memguard.text.units import format_bytes
from memguard.thresholds import EXPLAINED

_REMEDY = (
    "bound it (lru_cache(maxsize=64); drop the oldest key of a dict), or key it by something that recurs, like a "
    "length or a shape: a tensor, an id() or a function made anew is another key each time."
)


LATER_SHARE = 0.5
"""Share of its first growth a batch with which a cache must go on to grow in a later pass over the data."""


@final
class KeptCaches:
    """The caches that were reported."""

    def __init__(self) -> None:
        self._heaviest: KeptOutputs | None = None
        self._first_in_epoch: dict[tuple[object, ...], dict[int, KeptOutputs]] = {}
        """What was first measured of each cache in each epoch."""

    def learn(self, rule: Rule, fact: Fact, run: Run) -> Iterable[Claim]:
        """A warning where nothing bounds one, or where a later pass over the data brings new keys again."""
        if not isinstance(fact, KeptOutputs) or not fact.cached or not is_pile(fact):
            return
        if self._heaviest is None or fact.bytes_per_batch > self._heaviest.bytes_per_batch:
            self._heaviest = fact
        if self._grows_in_later_passes(fact, run):
            fact = replace(fact, bounded=False)
            keys = "Later passes over the data bring new keys again: it never stops growing."
        else:
            keys = "If its keys hardly ever come twice, it never stops growing."
        yield rule.claim(
            fact,
            Severity.WARNING if never_stops(fact, run) else Severity.INFO,
            f"{who_keeps(fact)} {what_is_kept(fact)} since batch {fact.first_batch} "
            f"{in_memory(run)}, and is a cache: {format_bytes(fact.bytes)}{so_far(run)}, "
            f"{format_bytes(fact.bytes_per_batch)} more with every batch. {keys}",
            remedy_of(fact),
            nbytes=fact.bytes,
            bytes_per_batch=fact.bytes_per_batch,
            evidence=Evidence.GROWTH,
            count=fact.tensors,
            since=fact.first_batch,
            names=fact.parts,
            batches_left=0,  # whether new keys go on to come only the floor can tell
        )

    def _grows_in_later_passes(self, fact: KeptOutputs, run: Run) -> bool:
        """Whether it grew in a pass over the data by whose beginning each key had come once.

        That is the second epoch after the one in which it was first measured: it may have begun in the midst of one.
        """
        if run.epoch is None or fact.capacity is not None or fact.stage is not Stage.TRAIN:
            return False
        measured = self._first_in_epoch.setdefault(cause_of(fact), {})
        measured.setdefault(run.epoch, fact)
        later = min((epoch for epoch in measured if epoch >= min(measured) + 2), default=None)
        if later is None:
            return False
        batches = fact.batch - measured[later].batch
        grown = fact.bytes - measured[later].bytes
        return batches >= MIN_BATCHES and grown >= LATER_SHARE * fact.bytes_per_batch * batches

    def behind(self, found: Outlook) -> KeptOutputs | None:
        """The cache that accounts for a growth, if one does."""
        cache = self._heaviest
        return cache if cache is not None and cache.bytes_per_batch >= EXPLAINED * found.growth.rate else None


def of_cache(cache: KeptOutputs) -> str:
    """Which cache it is that grows."""
    each = format_bytes(cache.bytes_per_batch)
    return f"{holder(cache.place)} is a cache with keys that hardly ever recur: it grows by {each} with every batch"


def remedy_of(cache: KeptOutputs) -> str:
    """What to change."""
    return cache.remedy or _REMEDY
