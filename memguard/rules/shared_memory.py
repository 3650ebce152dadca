"""MG704: shared memory that DataLoader workers pass batches through."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, final

from memguard.records.claims import Claim
from memguard.records.facts import Fact, KeptOnHost
from memguard.records.findings import Severity
from memguard.records.stats import BatchRecord, Run, SlowStats
from memguard.rules.finding_text import holder
from memguard.rules.interface import READINGS, Rule
from memguard.text.units import format_bytes

SHM_SHARE = 0.10
MIN_SHM_BYTES = 16 * 1024**2
FILES_PER_BATCH, FILES_BATCHES = 0.5, 100


@final
class SharedMemory(Rule):
    """Shared memory is nearly full, or tensors of workers are kept.

    What: less than a tenth of ``/dev/shm`` is free, the number of open files rises with every batch, or a container
    keeps the tensors that workers handed over batch after batch, or arrays made of them with ``numpy()``, which keep
    the tensors: ``list(loader)``, ``targets.append(batch["y"].numpy())``.

    Why it matters: workers hand their batches over through shared memory. When it is full, the next batch ends the
    worker with a bus error; each kept tensor of a worker also keeps a file open, until their number is exhausted.

    How to fix: start the container with a larger ``--shm-size``, use fewer workers or a smaller ``prefetch_factor``;
    clone or copy what is kept of a batch instead of keeping the batch's own tensors.
    """

    code: ClassVar[str] = "MG704"
    name: ClassVar[str] = "shared-memory"
    hears: ClassVar[int] = READINGS

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
