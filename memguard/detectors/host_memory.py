"""MG701 to MG704: host memory, where the kernel ends the run without an exception."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, final

from memguard.detectors.interface import Detector
from memguard.detectors.ratchet import Ratchet, outlook
from memguard.detectors.telling import from_record
from memguard.findings import Finding, Severity
from memguard.stats import BatchRecord, Run, SlowStats, Stage
from memguard.units import format_bytes

HOST_WINDOWS, HOST_WARM_UP = (64, 256, 1024), 128
"""Wider than the device's: malloc arenas and primitive caches settle slowly."""
SAMPLE_WINDOWS, SAMPLE_WARM_UP = (8, 32), 8
"""Of readings of the slow lane, about one a second."""
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
        self._told = False

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Finding]:
        """Judges the floor of resident memory."""
        rss, slow = record.host_rss_bytes, run.slow
        if self._told or rss is None or record.stage is not Stage.TRAIN:
            return
        if record.epoch != self._epoch:
            if self._epoch is not None:
                self._ratchet.epoch_end()
            self._epoch = record.epoch
        self._peak = max(self._peak, rss)
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


def _room(slow: SlowStats, own: int) -> int | None:
    """What a part of the host's memory could grow to: itself and what is still free under the limit."""
    if slow.host_limit_bytes is not None and slow.host_used_bytes is not None:
        return own + max(slow.host_limit_bytes - slow.host_used_bytes, 0)
    return own + slow.host_available_bytes if slow.host_available_bytes is not None else None


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

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Finding]:
        """Judges each new reading."""
        slow = run.slow
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
