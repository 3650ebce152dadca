"""MG701: the process's RAM grows, until the kernel ends the run without an exception; and what is left of it."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable
from typing import final

from memguard.records.claims import Claim, Evidence
from memguard.records.facts import NOWHERE, Fact, KeptOnHost, ModelCalled
from memguard.records.findings import Severity
from memguard.records.stats import BatchRecord, Run, Series, SlowStats, Stage
from memguard.rules.finding_text import holder, is_on_host, plural
from memguard.rules.growth_test import EVENNESS, REACH, GrowthTest, Outlook, TrainingFloor, outlook
from memguard.rules.interface import Rule
from memguard.text.units import format_bytes
from memguard.thresholds import EXPLAINED

SAMPLE_WINDOWS, SAMPLE_WARM_UP = (8, 32), 8
"""Of readings of the slow lane, one a second or every few."""
MOST_TIMES = 4096


def free_bytes(slow: SlowStats) -> int | None:
    """What is still free under the kernel's limit."""
    if slow.host_limit_bytes is not None and slow.host_used_bytes is not None:
        return max(slow.host_limit_bytes - slow.host_used_bytes, 0)
    return slow.host_available_bytes


def room_bytes(slow: SlowStats, own_bytes: int) -> int | None:
    """What a part of the host's memory could grow to: itself and what is still free."""
    free = free_bytes(slow)
    return None if free is None else own_bytes + free


def left(free: int | None) -> str:
    """The end of a sentence that says what is free, where that is known."""
    return "" if free is None else f"; {format_bytes(free)} are free"


@final
class SampledGrowth:
    """The growth test on readings of the slow lane: each counts once, however many batches see it."""

    def __init__(self) -> None:
        self._ratchet = GrowthTest(SAMPLE_WINDOWS, SAMPLE_WARM_UP)
        self._newest: SlowStats | None = None
        self._peak = 0
        self._times: deque[float] = deque(maxlen=MOST_TIMES)
        self.told = False
        self.since: int | None = None
        """The record at which the reported growth began."""

    def grows(self, slow: SlowStats, value: int | None, record: BatchRecord) -> float | None:
        """Bytes a second by which it grows, if that leads to the limit."""
        if self.told or value is None or slow is self._newest:
            return None
        self._newest = slow
        self._times.append(record.time)
        self._peak = max(self._peak, value)
        limit = room_bytes(slow, value)
        if not self._ratchet.push(value, 1, record.batch) or limit is None:
            return None
        found = outlook(self._ratchet, peak=self._peak, limit=limit, batches_left=None, epoch_left=None)
        self.told = found is not None
        if found is None:
            return None
        self.since = found.growth.since
        readings = max(min(found.growth.batches, len(self._times) - 1), 1)
        seconds = self._times[-1] - self._times[-1 - readings]
        return found.growth.rate * readings / seconds if seconds > 0 else found.growth.rate


HOST_WINDOWS, HOST_WARM_UP = (64, 256, 1024), 128
"""Wider than the device's: malloc arenas and primitive caches settle slowly."""
FLOOR_BATCHES, FLOORS = 16, 9
"""Batches whose lowest value makes a floor, and floors in a row that have to rise until the end."""
NAMED_FLOORS = 4
"""The same where a container accounts for what they rise by."""
MIN_GROWN_BYTES = 64 * 1024**2
MIN_KEPT_BYTES = 16 * 1024
"""Kept with every batch; less is a log of numbers."""
MIN_CACHED_BYTES = 256 * 1024
"""The same in a cache by key, whose keys may come again."""
SOON_BATCHES = 10_000
"""A buffer that is full of memory before so many batches is a warning."""


@final
class HostGrowth(Rule, code="MG701", name="host-growth"):
    """The process's RAM grows towards its limit.

    What: the resident memory left after each batch rises without falling again, and at this rate reaches what the
    kernel allows (the container's limit, or all RAM).

    Why it matters: there is no exception. The kernel ends the process with signal 9, or the machine swaps.

    How to fix: look for lists and dictionaries that grow with every batch (losses with graphs, metrics, caches of a
    dataset); with variable shapes on CPU, bucket them or set ``MALLOC_ARENA_MAX=2``.
    """

    def __init__(self) -> None:
        self._floor = TrainingFloor(GrowthTest(HOST_WINDOWS, HOST_WARM_UP))
        self._told = self._named = False
        self._suspect: KeptOnHost | None = None
        self._batches = 0
        self._lowest: int | None = None
        self._floors: deque[int] = deque(maxlen=FLOORS)
        self._newest = 0
        """The newest record of training."""
        self._begun = 0
        """The record with which the newest floor begins."""
        self._since: int | None = None
        """The same of the first of the floors that have risen until now."""

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """A container that was seen to grow: as bad as what it will have taken when the run is over."""
        if not isinstance(fact, KeptOnHost):
            return
        if fact.bounded and fact.capacity is not None and not fact.pinned and _overflows(fact, run):
            self._named = True
            yield self._too_large(fact, fact.capacity, run)
            return
        if fact.bounded or fact.bytes_per_batch < MIN_KEPT_BYTES:
            before = self._suspect
            if not fact.from_workers and (before is None or fact.bytes_per_batch > before.bytes_per_batch):
                self._suspect = fact  # harmless as far as it shows: only the process's own growth says otherwise
            if fact.by_key and not fact.from_workers and fact.bytes_per_batch >= MIN_CACHED_BYTES:
                yield self._cache(fact, run)
            return
        if fact.pinned:
            self._named = True  # by MG703
            return
        self._named = True
        free = free_bytes(run.slow)
        left = run.batches_left if run.batches_left is not None else round(REACH * self._batches)
        severity = Severity.INFO
        if free is not None and fact.bytes_per_batch * left > free:
            severity = Severity.CRITICAL if run.batches_left is not None else Severity.WARNING
        yield self._named_by(
            fact,
            severity,
            f"{holder(fact.place)} keeps {format_bytes(fact.bytes_per_batch)} more in host memory with every batch, "
            f"and nothing in the source empties it{_room('; ', free, fact)}.",
            "keep a number of each batch instead of all of it, write it to disk, or bound how many are kept.",
        )

    def _named_by(self, fact: KeptOnHost, severity: Severity, message: str, advice: str) -> Claim:
        rate, since = fact.bytes_per_batch, fact.first_batch
        return self.claim(fact, severity, message, advice, nbytes=fact.bytes, bytes_per_batch=rate, since=since)

    def _cache(self, fact: KeptOnHost, run: Run) -> Claim:
        """A cache of which nobody knows yet whether its keys come again."""
        room = _room(" ", free_bytes(run.slow), fact)
        return self._named_by(
            fact,
            Severity.INFO,
            f"{holder(fact.place)} keeps {format_bytes(fact.bytes_per_batch)} more in host memory with every batch. It "
            f"is asked for a key first: if keys hardly ever come twice, it never stops growing.{room and room + '.'}",
            "leave random and continuous values out of the key, bound the cache (functools.lru_cache(maxsize=...)), or "
            "keep none.",
        )

    def _too_large(self, fact: KeptOnHost, capacity: int, run: Run) -> Claim:
        """A buffer whose bound is beyond what there is."""
        free = free_bytes(run.slow) or 0
        full = format_bytes(_bytes_when_full(fact))
        return self._named_by(
            fact,
            Severity.WARNING if free // fact.bytes_per_batch <= SOON_BATCHES else Severity.INFO,
            f"{holder(fact.place)} is bounded at {capacity:,} elements, which will take about {full}"
            f"{_room('; ', free, fact)} more.",
            "choose a bound that fits, or keep less of each element: pictures as uint8, one frame instead of the stack "
            "of which it is a part, half precision, a file that is mapped into memory.",
        )

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Claim]:
        """Judges the floor of resident memory."""
        return self.observe_alike((record,), run)

    def observe_alike(self, records: Series, run: Run) -> Iterable[Claim]:
        """Judges it after some that are alike."""
        first = records[0]
        if first.stage is not Stage.TRAIN:
            return ()
        before, self._batches = self._batches, self._batches + len(records)
        self._newest = records[-1].batch
        rss = first.host_rss_bytes
        if self._told or rss is None:
            return ()
        # The tensors of a virtual GPU lie in host memory: what is left is the program's.
        own = rss - (first.allocated_end_bytes or 0) if run.device.startswith("virtual") else rss
        self._lowest = own if self._lowest is None or own < self._lowest else self._lowest
        for _ in range(self._batches // FLOOR_BATCHES - before // FLOOR_BATCHES):
            if not self._floors or self._lowest <= self._floors[-1]:
                self._since = self._begun
            self._floors.append(self._lowest)
            self._lowest, self._begun = own, self._newest
        if not self._batches % FLOOR_BATCHES:
            self._lowest = None
        shown = self._floor.observe_alike(records, run, end=rss, peak=rss, limit=lambda: room_bytes(run.slow, rss))
        if not shown:
            return ()
        self._told = True
        record, found = shown[0]
        return (self._reached(record, rss, found),)

    def _reached(self, record: BatchRecord, rss: int, found: Outlook) -> Claim:
        """The kernel's limit is near."""
        return self.claim(
            record,
            Severity.CRITICAL,
            f"host memory grows by {format_bytes(found.growth.rate)} with every batch, to {format_bytes(rss)} now: "
            f"at this rate the kernel's limit is reached in about {found.batches_to_limit} batches{self._meanwhile()}.",
            "look for what is kept of every batch: losses with their graph, metrics, a dataset's cache.",
            nbytes=round(found.growth.observed),
            bytes_per_batch=found.growth.rate,
            since=found.growth.since,
        )

    def finish(self, run: Run) -> Iterable[Claim]:
        """A growth that went on to the end without a name and without danger is told as it ends."""
        if self._told or self._named:
            return
        floors = list(self._floors)[-NAMED_FLOORS:]
        accounts = len(floors) == NAMED_FLOORS and self._accounts_for(_even_growth(floors))
        if not accounts:
            floors = list(self._floors)
            if len(floors) < FLOORS or run.device.startswith("virtual"):
                return  # what a library frees for a virtual GPU stays with the process for a while
        rate = _even_growth(floors)
        steps = (len(floors) - 1) * FLOOR_BATCHES
        grown = floors[-1] - floors[0]
        if rate is None or grown < MIN_GROWN_BYTES:
            return
        place = self._suspect.place if self._suspect is not None else NOWHERE
        what = self._meanwhile() or (
            ", and no Python container that grows was met: a library, or something that a C extension keeps"
        )
        yield self.claim(
            ModelCalled(batch=self._newest, stage=Stage.TRAIN, place=place),
            Severity.INFO,
            f"host memory was still growing at the end, by {format_bytes(rate)} with every batch "
            f"({format_bytes(grown)} over the last {steps}){what}.",
            "bound how many are kept there, or keep none if what is asked for hardly ever comes twice."
            if accounts
            else "if longer runs matter, leave parts of the loop out (decoding, logging, augmentation) until it "
            "stops; with variable shapes on the CPU set MALLOC_ARENA_MAX=2 or bucket them.",
            nbytes=grown,
            bytes_per_batch=rate,
            evidence=Evidence.GROWTH if is_on_host(run) else None,  # a name for tensors is one for the host's memory
            since=self._since,
        )

    def _accounts_for(self, rate: float | None) -> bool:
        """Whether the container that got longer makes a growth, and went on at the pace at which it was met."""
        own = self._suspect.bytes_per_batch if self._suspect is not None else 0.0
        return rate is not None and own >= EXPLAINED * rate and rate >= EXPLAINED * own

    def _meanwhile(self) -> str:
        """The container that got longer, though it did not look as if it could be the reason."""
        if self._suspect is None:
            return ""
        return f"; {holder(self._suspect.place)} got longer with every batch meanwhile"


def _even_growth(floors: list[int]) -> float | None:
    """Bytes a batch by which floors rise, each above the one before it; None where they do not, or unevenly."""
    rises = [after - before for before, after in itertools.pairwise(floors)]
    grown = sum(rises)
    even = bool(rises) and grown > 0 and min(rises) >= EVENNESS * grown / len(rises)
    return grown / (len(rises) * FLOOR_BATCHES) if even else None


def _room(before: str, free: int | None, fact: KeptOnHost) -> str:
    if free is None:
        return ""
    return f"{before}{format_bytes(free)} are free, enough for {plural(int(free / fact.bytes_per_batch), 'batch')}"


def _bytes_when_full(fact: KeptOnHost) -> int:
    return round((fact.capacity or 0) * fact.bytes / max(fact.elements, 1))


def _overflows(fact: KeptOnHost, run: Run) -> bool:
    """Whether a bounded container fills the memory before it is full."""
    free = free_bytes(run.slow)
    enough = fact.bytes_per_batch >= MIN_KEPT_BYTES
    return free is not None and enough and _bytes_when_full(fact) - fact.bytes > free
