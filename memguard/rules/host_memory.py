"""MG702, MG703 and MG704: workers that copy or cache, pinned memory, shared memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from memguard.records.claims import Claim
from memguard.records.facts import Fact, KeptOnHost, PinnedCacheGrows, PinnedRounded, WorkerObjects
from memguard.records.findings import Severity
from memguard.records.stats import BatchRecord, Run, SlowStats
from memguard.rules.finding_text import holder, plural
from memguard.rules.growth_test import REACH
from memguard.rules.host_growth import SampledGrowth, free_bytes, left
from memguard.rules.interface import READINGS, Rule
from memguard.text.units import format_bytes

MIN_WORKER_BYTES = 32 * 1024**2


@final
class WorkerGrowth(Rule, code="MG702", name="worker-growth", hears=READINGS):
    """DataLoader workers' private memory grows.

    What: the private memory of the worker processes rises without falling again, towards what the machine has.

    Why it matters: a forked worker shares the dataset with its parent until it touches it. Reading a Python object
    changes its reference count, which copies its page: a large list or dictionary ends up once in every worker.

    How to fix: keep the index in numpy arrays, Arrow or tensors instead of lists of Python objects; fewer workers;
    ``persistent_workers=False`` gives the copies back after each epoch.
    """

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


@final
class PinnedGrowth(Rule, code="MG703", name="pinned-growth", hears=READINGS):
    """Pinned host memory grows.

    What: PyTorch's cache of pinned memory rises without falling again, or a container keeps pinned tensors of batch
    after batch; or pinned tensors, such as those a checkpoint is staged in, take a quarter more than they asked for.

    Why it matters: pinned blocks are rounded up to powers of two and kept. With sizes that vary, the cache holds a
    block for every size, and nothing of it can be swapped.

    How to fix: a smaller ``prefetch_factor``, inputs of fixed sizes, ``pin_memory=False`` where copies are not the
    bottleneck; ``torch.accelerator.empty_host_cache()`` where it exists. Against rounding
    ``PYTORCH_ALLOC_CONF=pinned_max_round_threshold_mb:1`` (from torch 2.13 on); else one flat buffer for all tensors.
    """

    def __init__(self) -> None:
        self._sampled = SampledGrowth()
        self._named = False

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """A container that keeps pinned tensors; or a cache that held more at each look."""
        free = free_bytes(run.slow)
        if isinstance(fact, KeptOnHost) and fact.pinned and not fact.bounded:
            self._named = True
            batches = run.batches_left
            fills = free is not None and batches is not None and fact.bytes_per_batch * batches > free
            yield self.claim(
                fact,
                Severity.WARNING if fills else Severity.INFO,
                f"{holder(fact.place)} keeps pinned tensors of {format_bytes(fact.bytes_per_batch)} more with every "
                f"batch: nothing of that can be swapped{left(free)}.",
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
                f"{format_bytes(fact.active_bytes)} are in use: it keeps a block for every size{left(free)}.",
                "give batches a fixed size, lower prefetch_factor, or switch pin_memory off.",
                nbytes=fact.bytes,
                since=fact.since_batch,
            )
        elif isinstance(fact, PinnedRounded):
            lost = fact.block_bytes - fact.bytes
            yield self.claim(
                fact,
                Severity.INFO,
                f"{holder(fact.place)} keeps {plural(fact.tensors, 'pinned tensor')} of {format_bytes(fact.bytes)}, "
                f"for which PyTorch's cache holds {format_bytes(fact.block_bytes)}: each block is rounded up to a "
                f"power of two, and {format_bytes(lost)} of host memory are not used{left(free)}.",
                "start the process with PYTORCH_ALLOC_CONF=pinned_max_round_threshold_mb:1 (from torch 2.13 on), so "
                "that no block above 1 MiB is rounded; else keep them as views of one flat pinned tensor.",
                nbytes=lost,
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


SHM_SHARE = 0.10
MIN_SHM_BYTES = 16 * 1024**2
FILES_PER_BATCH, FILES_BATCHES = 0.5, 100


@final
class SharedMemory(Rule, code="MG704", name="shared-memory", hears=READINGS):
    """Shared memory is nearly full, or tensors of workers are kept.

    What: less than a tenth of ``/dev/shm`` is free, the number of open files rises with every batch, or a container
    keeps the tensors that workers handed over batch after batch, or arrays made of them with ``numpy()``, which keep
    the tensors: ``list(loader)``, ``targets.append(batch["y"].numpy())``.

    Why it matters: workers hand their batches over through shared memory. When it is full, the next batch ends the
    worker with a bus error; each kept tensor of a worker also keeps a file open, until their number is exhausted.

    How to fix: start the container with a larger ``--shm-size``, use fewer workers or a smaller ``prefetch_factor``;
    clone or copy what is kept of a batch instead of keeping the batch's own tensors.
    """

    def __init__(self) -> None:
        self._newest: SlowStats | None = None
        self._files: list[tuple[int, int]] = []
        self._told_full = False
        self._told_files = False

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """A container that keeps tensors in shared memory of batch after batch."""
        if not isinstance(fact, KeptOnHost) or not fact.from_workers:
            return  # a bound in bytes is none in open files: those of one epoch are enough
        self._told_files = True  # by name, which says more than their number
        files = f", {run.slow.open_files} files are open" if run.slow.open_files else ""
        kept = "tensors as DataLoader workers handed them over, more with every batch"
        if not fact.bytes_per_batch:
            kept = f"{fact.elements} elements with tensors as DataLoader workers handed them over"
        yield self.claim(
            fact,
            Severity.INFO,
            f"{holder(fact.place)} keeps {kept}: each keeps its shared memory and an open file{files}.",
            "keep a copy of what is needed of a batch (x.clone(), x.numpy().copy(), .tolist() for labels) instead of "
            "the worker's own tensor.",
            nbytes=fact.bytes,
            bytes_per_batch=fact.bytes_per_batch,
        )

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Claim]:
        """Judges each new reading; without workers there is nothing to hand over."""
        slow = run.slow
        if slow is self._newest or not slow.num_workers:
            return
        self._newest = slow
        free, total = slow.shm_free_bytes, slow.shm_total_bytes
        if free is not None and total and not self._told_full and (free < SHM_SHARE * total or free < MIN_SHM_BYTES):
            self._told_full = True
            yield self.claim(
                record,
                Severity.WARNING,
                f"{format_bytes(free)} of {format_bytes(total)} are left in /dev/shm, through which "
                f"{slow.num_workers} workers hand over their batches.",
                "give the container a larger --shm-size, or use fewer workers and a smaller prefetch_factor.",
                nbytes=free,
            )
        if slow.open_files is not None and not self._told_files:
            yield from self._judge_files(record, slow.open_files)

    def _judge_files(self, record: BatchRecord, files: int) -> Iterable[Claim]:
        if self._files and files < self._files[-1][1]:
            self._files.clear()
        self._files.append((record.batch, files))
        (first_batch, first), batches = self._files[0], record.batch - self._files[0][0]
        if len(self._files) < 5 or batches < FILES_BATCHES or files - first < FILES_PER_BATCH * batches:
            return
        self._told_files = True
        yield self.claim(
            record,
            Severity.WARNING,
            f"open files rose from {first} to {files} since batch {first_batch}: tensors from DataLoader workers "
            "are kept, and each keeps shared memory and a file.",
            "clone what is kept of a batch (x.clone()), instead of keeping the worker's own tensor.",
        )
