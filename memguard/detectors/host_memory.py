"""MG701 to MG704: host memory, where the kernel ends the run without an exception."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable
from typing import ClassVar, final

from memguard.detectors.interface import Detector
from memguard.detectors.ratchet import EVENNESS, REACH, Ratchet, outlook
from memguard.detectors.telling import from_fact, from_record, holder, plural
from memguard.facts import Fact, KeptOnHost, WorkerObjects
from memguard.findings import Finding, Severity
from memguard.stats import BatchRecord, Run, SlowStats, Stage
from memguard.units import format_bytes

HOST_WINDOWS, HOST_WARM_UP = (64, 256, 1024), 128
"""Wider than the device's: malloc arenas and primitive caches settle slowly."""
SAMPLE_WINDOWS, SAMPLE_WARM_UP = (8, 32), 8
"""Of readings of the slow lane, about one a second."""
FLOOR_BATCHES, FLOORS = 16, 9
"""Batches whose lowest value makes a floor, and floors in a row that have to rise until the end."""
MIN_GROWN_BYTES = 64 * 1024**2
MIN_KEPT_BYTES = 16 * 1024
"""Kept with every batch; less is a log of numbers."""
MIN_WORKER_BYTES = 32 * 1024**2
SHM_SHARE = 0.10
MIN_SHM_BYTES = 16 * 1024**2
FILES_PER_BATCH, FILES_BATCHES = 0.5, 100


@final
class HostGrowth(Detector):
    """The process's RAM grows towards its limit.

    What: the resident memory left after each batch rises for good, and at this rate reaches what the kernel allows
    (the container's limit, or all RAM).

    Why it matters: there is no exception. The kernel ends the process with signal 9, or the machine swaps.

    How to fix: look for lists and dictionaries that grow with every batch (losses with graphs, metrics, caches of a
    dataset); with variable shapes on CPU, bucket them or set ``MALLOC_ARENA_MAX=2``.
    """

    code: ClassVar[str] = "MG701"
    name: ClassVar[str] = "host-growth"

    def __init__(self) -> None:
        self._ratchet = Ratchet(HOST_WINDOWS, HOST_WARM_UP)
        self._peak = 0
        self._epoch: int | None = None
        self._told = self._named = False
        self._batches = 0
        self._lowest: int | None = None
        self._floors: deque[int] = deque(maxlen=FLOORS)

    def learn(self, fact: Fact, run: Run) -> Iterable[Finding]:
        """A container that was seen to grow: as bad as what it will have taken when the run is over."""
        if not isinstance(fact, KeptOnHost) or fact.bounded or fact.bytes_per_batch < MIN_KEPT_BYTES:
            return
        self._named = True
        free = _free(run.slow)
        left = run.batches_left if run.batches_left is not None else round(REACH * self._batches)
        severity = Severity.INFO
        if free is not None and fact.bytes_per_batch * left > free:
            severity = Severity.CRITICAL if run.batches_left is not None else Severity.WARNING
        room = ""
        if free is not None:
            room = f"; {format_bytes(free)} are free, enough for {plural(int(free / fact.bytes_per_batch), 'batch')}"
        yield from_fact(
            self,
            fact,
            run,
            severity,
            f"{holder(fact.place)} keeps {format_bytes(fact.bytes_per_batch)} more in host memory with every batch, "
            f"and nothing in the source empties it{room}.",
            "keep a number of each batch instead of all of it, write it to disk, or bound how many are kept.",
            nbytes=fact.bytes,
            bytes_per_batch=fact.bytes_per_batch,
        )

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Finding]:
        """Judges the floor of resident memory."""
        rss, slow = record.host_rss_bytes, run.slow
        self._batches += record.stage is Stage.TRAIN
        if self._told or rss is None or record.stage is not Stage.TRAIN:
            return
        if record.epoch != self._epoch:
            if self._epoch is not None:
                self._ratchet.epoch_end()
            self._epoch = record.epoch
        self._peak = max(self._peak, rss)
        self._lowest = rss if self._lowest is None else min(self._lowest, rss)
        if not self._batches % FLOOR_BATCHES:
            self._floors.append(self._lowest)
            self._lowest = None
        limit = _room(slow, rss)
        if not self._ratchet.push(rss) or limit is None:
            return
        length = run.batches_per_epoch.get(Stage.TRAIN)
        found = outlook(
            self._ratchet,
            peak=self._peak,
            limit=limit,
            batches_left=run.batches_left,
            epoch_left=length - record.index - 1 if length is not None and record.index is not None else None,
            epoch_batches=length,
        )
        if found is None:
            return
        self._told = True
        yield from_record(
            self,
            record,
            run,
            Severity.CRITICAL,
            f"host memory grows by {format_bytes(found.growth.rate)} with every batch, to {format_bytes(rss)} now: "
            "at this "
            f"rate the kernel's limit is reached in about {found.batches_to_limit} batches.",
            "look for what is kept of every batch: losses with their graph, metrics, a dataset's cache.",
            nbytes=round(found.growth.observed),
            bytes_per_batch=found.growth.rate,
        )

    def finish(self, run: Run) -> Iterable[Finding]:
        """A growth that went on to the end without a name and without danger is told as it ends."""
        floors = list(self._floors)
        grown = floors[-1] - floors[0] if floors else 0
        rises = [after - before for before, after in itertools.pairwise(floors)]
        even = len(floors) == FLOORS and min(rises) >= EVENNESS * grown / len(rises)
        if self._told or self._named or not even or grown < MIN_GROWN_BYTES:
            return
        rate = grown / (len(rises) * FLOOR_BATCHES)
        yield Finding(
            code=self.code,
            name=self.name,
            severity=Severity.INFO,
            message=f"host memory was still growing at the end, by {format_bytes(rate)} with every batch "
            f"({format_bytes(grown)} over the last {len(rises) * FLOOR_BATCHES}), and no Python container that grows "
            "was met: a library, or something that a C extension keeps.",
            advice="if longer runs matter, leave parts of the loop out (decoding, logging, augmentation) until it "
            "stops; with variable shapes on the CPU set MALLOC_ARENA_MAX=2 or bucket them.",
            stage=Stage.TRAIN,
            batch=self._batches,
            bytes=grown,
            bytes_per_batch=rate,
            rank=run.rank,
        )


def _free(slow: SlowStats) -> int | None:
    """What is still free under the kernel's limit."""
    if slow.host_limit_bytes is not None and slow.host_used_bytes is not None:
        return max(slow.host_limit_bytes - slow.host_used_bytes, 0)
    return slow.host_available_bytes


def _room(slow: SlowStats, own: int) -> int | None:
    """What a part of the host's memory could grow to: itself and what is still free."""
    free = _free(slow)
    return None if free is None else own + free


class _Sampled:
    """The growth test on readings of the slow lane: each counts once, however many batches see it."""

    def __init__(self) -> None:
        self._ratchet = Ratchet(SAMPLE_WINDOWS, SAMPLE_WARM_UP)
        self._newest: SlowStats | None = None
        self._peak = 0
        self.told = False

    def grows(self, slow: SlowStats, value: int | None) -> float | None:
        """Bytes a reading by which it grows, if that leads to the limit."""
        if self.told or value is None or slow is self._newest:
            return None
        self._newest = slow
        self._peak = max(self._peak, value)
        limit = _room(slow, value)
        if not self._ratchet.push(value) or limit is None:
            return None
        found = outlook(self._ratchet, peak=self._peak, limit=limit, batches_left=None, epoch_left=None)
        self.told = found is not None
        return found.growth.rate if found is not None else None


@final
class WorkerGrowth(Detector):
    """DataLoader workers' private memory grows.

    What: the private memory of the worker processes rises for good, towards what the machine has.

    Why it matters: a forked worker shares the dataset with its parent until it touches it. Reading a Python object
    changes its reference count, which copies its page: a large list or dictionary ends up once in every worker.

    How to fix: keep the index in numpy arrays, Arrow or tensors instead of lists of Python objects; fewer workers;
    ``persistent_workers=False`` gives the copies back after each epoch.
    """

    code: ClassVar[str] = "MG702"
    name: ClassVar[str] = "worker-growth"

    def __init__(self) -> None:
        self._sampled = _Sampled()
        self._cache: WorkerObjects | None = None
        self._lowest: int | None = None

    def learn(self, fact: Fact, run: Run) -> Iterable[Finding]:
        """A list or dictionary of Python objects that every worker will copy; a cache only once the workers grow."""
        if not isinstance(fact, WorkerObjects):
            return
        if fact.grows:
            self._cache = fact
            return
        free = _free(run.slow)
        severity = Severity.WARNING if free is not None and fact.workers * fact.bytes > free else Severity.INFO
        yield from_fact(
            self,
            fact,
            run,
            severity,
            f"{holder(fact.place)} is {plural(fact.elements, 'Python object')} of about {format_bytes(fact.bytes)} "
            f"together: reading them copies their pages, until each of {plural(fact.workers, 'worker')} has its own "
            f"({format_bytes(fact.workers * fact.bytes)} in all{_left(free)}).",
            "keep it in a numpy array, a tensor or Arrow, which workers share as long as they only read.",
            nbytes=fact.workers * fact.bytes,
        )

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Finding]:
        """Judges each new reading."""
        slow = run.slow
        if self._cache is not None:
            yield from self._judge_cache(self._cache, run)
        rate = self._sampled.grows(slow, slow.workers_rss_bytes)
        if rate is None:
            return
        yield from_record(
            self,
            record,
            run,
            Severity.WARNING,
            f"the private memory of {slow.num_workers or 'the'} DataLoader workers grows by {format_bytes(rate)} a "
            "second, "
            f"to {format_bytes(slow.workers_rss_bytes)} now; {format_bytes(slow.host_available_bytes)} are left.",
            "keep what workers read in numpy arrays, Arrow or tensors, not in lists or dictionaries of Python objects; "
            "use fewer workers.",
            nbytes=slow.workers_rss_bytes,
        )

    def _judge_cache(self, cache: WorkerObjects, run: Run) -> Iterable[Finding]:
        private = run.slow.workers_rss_bytes
        if private is None or not run.slow.num_workers:
            return
        self._lowest = private if self._lowest is None else min(self._lowest, private)
        grown = private - self._lowest
        if grown < MIN_WORKER_BYTES:
            return
        self._cache = None
        free = _free(run.slow)
        yield from_fact(
            self,
            cache,
            run,
            Severity.WARNING if free is not None and grown * REACH > free else Severity.INFO,
            f"{holder(cache.place)} is filled while {plural(cache.workers, 'worker')} read, in each of them for itself,"
            f" and nothing in the source empties it: their private memory grew by {format_bytes(grown)} so "
            f"far{_left(free)}.",
            "bound it, fill it before the workers start, or keep it in shared memory or on disk.",
            nbytes=private,
        )


def _left(free: int | None) -> str:
    return "" if free is None else f"; {format_bytes(free)} are free"


@final
class PinnedGrowth(Detector):
    """Pinned host memory grows.

    What: PyTorch's cache of pinned memory rises for good, towards what the machine has.

    Why it matters: pinned blocks are rounded up to powers of two and kept. With sizes that vary, the cache holds a
    block for every size, and nothing of it can be swapped.

    How to fix: a smaller ``prefetch_factor``, inputs of fixed sizes, ``pin_memory=False`` where copies are not the
    bottleneck; ``torch.accelerator.empty_host_cache()`` where it exists.
    """

    code: ClassVar[str] = "MG703"
    name: ClassVar[str] = "pinned-growth"

    def __init__(self) -> None:
        self._sampled = _Sampled()

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Finding]:
        """Judges each new reading."""
        slow = run.slow
        rate = self._sampled.grows(slow, slow.pinned_bytes)
        if rate is None:
            return
        yield from_record(
            self,
            record,
            run,
            Severity.WARNING,
            f"pinned host memory grows by {format_bytes(rate)} a second, to {format_bytes(slow.pinned_bytes)} now, "
            "of which "
            f"{format_bytes(slow.pinned_active_bytes)} are in use.",
            "lower prefetch_factor, give batches a fixed size, or switch pin_memory off.",
            nbytes=slow.pinned_bytes,
        )


@final
class SharedMemory(Detector):
    """Shared memory is nearly full, or tensors of workers are kept.

    What: less than a tenth of ``/dev/shm`` is free, or the number of open files rises with every batch.

    Why it matters: workers hand their batches over through shared memory. When it is full, the next batch ends the
    worker with a bus error; each kept tensor of a worker also keeps a file open, until their number is exhausted.

    How to fix: start the container with a larger ``--shm-size``, use fewer workers or a smaller ``prefetch_factor``;
    clone what is kept of a batch instead of keeping the batch's own tensors.
    """

    code: ClassVar[str] = "MG704"
    name: ClassVar[str] = "shared-memory"

    def __init__(self) -> None:
        self._newest: SlowStats | None = None
        self._files: list[tuple[int, int]] = []
        self._told_full = False
        self._told_files = False

    def learn(self, fact: Fact, run: Run) -> Iterable[Finding]:
        """A container that keeps tensors in shared memory of batch after batch."""
        if not isinstance(fact, KeptOnHost) or not fact.from_workers or fact.bounded:
            return
        files = f", {run.slow.open_files} files are open" if run.slow.open_files else ""
        yield from_fact(
            self,
            fact,
            run,
            Severity.INFO,
            f"{holder(fact.place)} keeps tensors as DataLoader workers handed them over, more with every batch: each "
            f"keeps its shared memory and an open file{files}.",
            "clone what is kept of a batch (x.clone(), or .tolist() for labels), instead of the worker's own tensor.",
            nbytes=fact.bytes,
            bytes_per_batch=fact.bytes_per_batch,
        )

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Finding]:
        """Judges each new reading; without workers there is nothing to hand over."""
        slow = run.slow
        if slow is self._newest or not slow.num_workers:
            return
        self._newest = slow
        free, total = slow.shm_free_bytes, slow.shm_total_bytes
        if free is not None and total and not self._told_full and (free < SHM_SHARE * total or free < MIN_SHM_BYTES):
            self._told_full = True
            yield from_record(
                self,
                record,
                run,
                Severity.WARNING,
                f"{format_bytes(free)} of {format_bytes(total)} are left in /dev/shm, through which "
                f"{slow.num_workers} workers hand over their batches.",
                "give the container a larger --shm-size, or use fewer workers and a smaller prefetch_factor.",
                nbytes=free,
            )
        if slow.open_files is not None and not self._told_files:
            yield from self._judge_files(record, run, slow.open_files)

    def _judge_files(self, record: BatchRecord, run: Run, files: int) -> Iterable[Finding]:
        if self._files and files < self._files[-1][1]:
            self._files.clear()
        self._files.append((record.batch, files))
        (first_batch, first), batches = self._files[0], record.batch - self._files[0][0]
        if len(self._files) < 5 or batches < FILES_BATCHES or files - first < FILES_PER_BATCH * batches:
            return
        self._told_files = True
        yield from_record(
            self,
            record,
            run,
            Severity.WARNING,
            f"open files rose from {first} to {files} since batch {first_batch}: tensors from DataLoader workers "
            "are kept, "
            "and each keeps shared memory and a file.",
            "clone what is kept of a batch (x.clone()), instead of keeping the worker's own tensor.",
        )
