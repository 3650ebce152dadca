"""MG702: memory that DataLoader workers keep grows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, final

from memguard.records.claims import Claim
from memguard.records.facts import Fact, WorkerObjects
from memguard.records.findings import Severity
from memguard.records.stats import BatchRecord, Run
from memguard.rules.finding_text import holder, plural
from memguard.rules.growth_test import REACH
from memguard.rules.host_room import SampledGrowth, free_bytes, left
from memguard.rules.interface import READINGS, Rule
from memguard.text.units import format_bytes

MIN_WORKER_BYTES = 32 * 1024**2


@final
class WorkerGrowth(Rule):
    """DataLoader workers' private memory grows.

    What: the private memory of the worker processes rises without falling again, towards what the machine has.

    Why it matters: a forked worker shares the dataset with its parent until it touches it. Reading a Python object
    changes its reference count, which copies its page: a large list or dictionary ends up once in every worker.

    How to fix: keep the index in numpy arrays, Arrow or tensors instead of lists of Python objects; fewer workers;
    ``persistent_workers=False`` gives the copies back after each epoch.
    """

    code: ClassVar[str] = "MG702"
    name: ClassVar[str] = "worker-growth"
    hears: ClassVar[int] = READINGS

    def __init__(self) -> None:
        self._sampled = SampledGrowth()
        self._cache: WorkerObjects | None = None
        self._lowest: tuple[int, int] | None = None
        """The least of their memory that was read, and the batch that showed it first."""
        self._moved = False
        """Whether readings of the workers' memory differed at all: each may be seen many times."""

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """A list or dictionary of Python objects that every worker will copy; a cache only once the workers grow."""
        if not isinstance(fact, WorkerObjects):
            return
        if fact.grows:
            if self._cache is None or not fact.elements:
                self._cache = fact
            return
        free = free_bytes(run.slow)
        severity = Severity.WARNING if free is not None and fact.workers * fact.bytes > free else Severity.INFO
        yield self.claim(
            fact,
            severity,
            f"{holder(fact.place)} is {plural(fact.elements, 'Python object')} of about {format_bytes(fact.bytes)} "
            f"together: reading them copies their pages, until each of {plural(fact.workers, 'worker')} has its own "
            f"({format_bytes(fact.workers * fact.bytes)} in all{left(free)}).",
            "keep it in a numpy array, a tensor or Arrow, which workers share as long as they only read.",
            nbytes=fact.workers * fact.bytes,
        )

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Claim]:
        """Judges each new reading."""
        slow = run.slow
        if self._cache is not None:
            yield from self._judge_cache(self._cache, record.batch, run)
        rate = self._sampled.grows(slow, slow.workers_rss_bytes, record)
        if rate is None:
            return
        yield self.claim(
            record,
            Severity.WARNING,
            f"the private memory of {slow.num_workers or 'the'} DataLoader workers grows by {format_bytes(rate)} a "
            f"second, to {format_bytes(slow.workers_rss_bytes)} now; "
            f"{format_bytes(slow.host_available_bytes)} are left.",
            "keep what workers read in numpy arrays, Arrow or tensors, not in lists or dictionaries of Python objects; "
            "use fewer workers.",
            nbytes=slow.workers_rss_bytes,
            since=self._sampled.since,
        )

    def finish(self, run: Run) -> Iterable[Claim]:
        """A run too short for readings of the workers' memory hears of a cache that its source alone shows.

        Of one with a limit, readings that hardly differ say more: its samples are small.
        """
        if self._cache is not None and not (self._cache.elements and self._moved):
            yield self._tell_cache(self._cache, 0, run)

    def _judge_cache(self, cache: WorkerObjects, batch: int, run: Run) -> Iterable[Claim]:
        private = run.slow.workers_rss_bytes
        if private is None or not run.slow.num_workers:
            return
        if self._lowest is None or private < self._lowest[0]:
            self._lowest = (private, batch)
        grown = private - self._lowest[0]
        self._moved = self._moved or grown > 0
        if grown >= MIN_WORKER_BYTES:
            self._cache = None
            yield self._tell_cache(cache, grown, run)

    def _tell_cache(self, cache: WorkerObjects, grown: int, run: Run) -> Claim:
        free = free_bytes(run.slow)
        limit = f"its limit of {cache.elements} is the whole dataset"
        emptied = limit if cache.elements else "nothing in the source empties it"
        so_far = f": their private memory grew by {format_bytes(grown)} so far" if grown else ""
        return self.claim(
            cache,
            Severity.WARNING if free is not None and grown * REACH > free else Severity.INFO,
            f"{holder(cache.place)} is filled while {plural(cache.workers, 'worker')} read, in each of them for itself,"
            f" and {emptied}{so_far}{left(free)}.",
            "bound it, fill it before the workers start, or keep it in shared memory or on disk.",
            nbytes=grown or None,
            since=self._lowest[1] if grown and self._lowest is not None else None,
        )
