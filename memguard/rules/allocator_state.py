"""MG401, MG402 and MG404: what the statistics of the caching allocator show."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import final

from memguard.records.claims import Claim
from memguard.records.facts import CompiledGraphs, Fact
from memguard.records.findings import Severity
from memguard.records.stats import BatchRecord, Run, limit_of
from memguard.rules.finding_text import call_of, called, from_post_mortem, plural
from memguard.rules.interface import CROWDED, DEVICE, PEAKS, RETRIES, Rule
from memguard.text.units import format_bytes

GAP, NEARLY_FULL, STREAK, SHORT_STREAK = 0.20, 0.90, 50, 12
"""The short streak is for a run that ends in it."""
PIECES = 0.05
"""Share of the device that lies free in segments of which a part is in use."""
STREAM_SHARE, STREAM_BATCHES, STREAM_RECENT = 0.10, 20, 25
"""Batches that hold so much among the last ones: a flush of the cache waits for the streams, and lets all go once."""
SETTLED_BATCHES, QUIET_BATCHES = 4, 50
RECENT_BATCHES = 100
"""First batches, in which one retry may come from benchmarking kernels."""
ROOMY = 0.25
"""Of the device left at the peak: what was flushed were cached blocks of sizes that are no longer asked for."""
OFTEN = 0.25
"""Retries a batch that slow a run down, however much is left."""


@final
class Fragmentation(Rule, code="MG401", name="fragmentation", hears=CROWDED | RETRIES):
    """Reserved memory is far above active memory while the device is nearly full.

    What: for fifty batches in a row, or the last twelve of a run, the allocator held over 20 % of the device in blocks
    that no tensor uses even at the peak, while less than 10 % of the device was free.

    Why it matters: the free memory is in pieces that no larger request fits into, or in segments for tensors of more
    than 1 MiB, which smaller ones do not share. The next somewhat larger batch fails with an out-of-memory error that
    names gigabytes "reserved but unallocated". Free memory of a private pool (``torch.cuda.MemPool``, a CUDA graph's)
    serves that pool alone: neither a retry nor ``empty_cache()`` takes from it, and PyTorch's error counts it as
    allocated.

    How to fix: set ``PYTORCH_ALLOC_CONF=expandable_segments:True`` (``PYTORCH_CUDA_ALLOC_CONF`` in older versions)
    before the process starts; pad or bucket variable lengths, so that sizes repeat. Let go of a private pool when its
    phase is over; one made with ``torch.cuda.MemPool(use_on_oom=True)`` gives others whole pieces before they fail.
    """

    def __init__(self) -> None:
        self._streak = self._pieces = 0
        self._retries = 0
        self._told = False
        self._last: BatchRecord | None = None
        self._pool_bytes = 0
        """What private pools hold."""

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """An error whose request the free pieces would have held together, or what is free in private pools."""
        if isinstance(fact, CompiledGraphs):
            self._pool_bytes = fact.pool_bytes or 0
        for cause in ("fragmentation", "private-pools"):
            found = None if self._told else from_post_mortem(self, fact, cause)
            if found is not None:
                self._told = True
                yield found

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Claim]:
        """Counts batches with a wide gap on a nearly full device."""
        limit, reserved, active = limit_of(run), record.reserved_peak_bytes, record.active_peak_bytes
        self._retries += record.num_alloc_retries or 0
        if self._told or not limit or reserved is None or active is None:
            return
        if not (reserved - active > GAP * limit and _is_nearly_full(reserved, record, run)):
            self._streak = self._pieces = self._retries = 0
            return
        pieces = record.inactive_split_bytes
        self._streak += 1
        self._pieces += pieces is None or pieces > PIECES * limit or bool(record.num_alloc_retries)
        self._last = record
        if self._streak >= STREAK:
            harms = bool(self._retries) and self._is_in_pieces()
            yield self._tell(record, run, Severity.WARNING if harms else Severity.INFO)

    def finish(self, run: Run) -> Iterable[Claim]:
        """A run that ends while it is so is told of it, where it was not too short to tell."""
        if not self._told and self._last is not None and self._streak >= SHORT_STREAK:
            yield self._tell(self._last, run, Severity.INFO)

    def _is_in_pieces(self) -> bool:
        """Whether it was so in most batches: segments that are only cached go back to the driver when it is needed."""
        return 2 * self._pieces > self._streak

    def _tell(self, record: BatchRecord, run: Run, severity: Severity) -> Claim:
        self._told = True
        reserved = record.reserved_peak_bytes or 0
        unused = reserved - (record.active_peak_bytes or 0)
        why = (
            "the free memory is in pieces, or in segments for other sizes than are asked for (tensors of up to 1 MiB "
            "have their own)."
        )
        if not self._is_in_pieces():
            why = (
                "most of it is in whole segments of sizes that are not requested now. PyTorch releases them before it "
                "fails, but has to wait for the device to do so, and no other process can use them."
            )
        advice = (
            "start the process with PYTORCH_ALLOC_CONF=expandable_segments:True, or make sizes repeat (pad, bucket)."
        )
        if 2 * self._pool_bytes > unused:
            why = (
                f"private pools (torch.cuda.MemPool, CUDA graphs) hold {format_bytes(self._pool_bytes)}, and what is "
                "free in one is for that pool alone: neither a retry nor empty_cache() takes from it."
            )
            advice = (
                "let go of a pool when its phase is over (del pool), or make it with "
                "torch.cuda.MemPool(use_on_oom=True)."
            )
        return self.claim(
            record,
            severity,
            f"{format_bytes(unused)} are reserved and unused even at the peak, for {self._streak} batches in a row"
            f"{called(record, run)}, "
            f"while {format_bytes(_free(reserved, record, run))} of {_what_is_shared(run)} are free: {why}",
            advice,
            nbytes=unused,
            place=call_of(record, run),
        )


def _is_nearly_full(reserved: int, record: BatchRecord, run: Run) -> bool:
    """Whether little is left of the device, or of the share that this process may take."""
    total, limit = run.device_total_bytes or 0, limit_of(run) or 0
    return reserved > NEARLY_FULL * limit or max(record.device_used_bytes or 0, reserved) > NEARLY_FULL * total > 0


def _what_is_shared(run: Run) -> str:
    """What this process may fill."""
    total, limit = run.device_total_bytes or 0, limit_of(run) or 0
    return "the device" if limit >= total else "this process's share of the device"


def _free(reserved: int, record: BatchRecord, run: Run) -> int:
    """What is left of the scarcer of the two."""
    total, limit = run.device_total_bytes or 0, limit_of(run) or 0
    return max(min(total - max(record.device_used_bytes or 0, reserved), limit - reserved), 0)


@final
class AllocatorThrash(Rule, code="MG402", name="allocator-thrash", hears=PEAKS | RETRIES):
    """The allocator flushes its cache to survive.

    What: ``num_alloc_retries`` rose: an allocation failed, all cached blocks were given back to the driver, and the
    allocation was tried again.

    Why it matters: it is an out-of-memory error that was avoided this once. Each retry waits for the device and makes
    the following allocations slow; the next slightly larger batch fails.

    How to fix: make the batch a little smaller, or free what other findings name; if much is reserved but not
    allocated, ``PYTORCH_ALLOC_CONF=expandable_segments:True``.
    """

    def __init__(self) -> None:
        self._first: int | None = None
        """The first record, which has a new peak: from there the batches count."""
        self._recent: deque[tuple[int, int]] = deque()
        self._told: Severity | None = None
        self._last: BatchRecord | None = None

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Claim]:
        """Counts retries among the last hundred batches."""
        batch, recent = record.batch, self._recent
        if self._first is None:
            self._first = batch
        if not record.num_alloc_retries:
            return
        recent.append((batch, record.num_alloc_retries))
        while recent[0][0] <= batch - RECENT_BATCHES:
            recent.popleft()
        if record.num_ooms:  # what failed for good is told as out of memory
            return
        if batch - self._first >= SETTLED_BATCHES:
            self._last = record
        retries, seen = sum(count for _, count in recent), min(batch - self._first + 1, RECENT_BATCHES)
        if _is_roomy(record, run):
            if retries < max(3, OFTEN * seen):
                return
            severity = Severity.WARNING
        elif retries >= 3:
            severity = Severity.CRITICAL
        elif batch - self._first >= QUIET_BATCHES:
            severity = Severity.WARNING
        else:
            return
        if self._told is not None and severity <= self._told:
            return
        yield self._tell(record, run, severity, retries, seen)

    def finish(self, run: Run) -> Iterable[Claim]:
        """A single retry of a short run is worth a line, once the first batches are over."""
        if self._told is None and self._last is not None and self._first is not None:
            seen = min(self._last.batch - self._first + 1, RECENT_BATCHES)
            yield self._tell(self._last, run, Severity.INFO, sum(count for _, count in self._recent), seen)

    def _tell(self, record: BatchRecord, run: Run, severity: Severity, retries: int, seen: int) -> Claim:
        self._told = severity
        if _is_roomy(record, run):
            why = "the cache had filled {} with blocks of sizes no longer asked for, as growing tensors leave them"
            advice = _SIZES
        else:
            why, advice = "{} is full, training is slower already, and a slightly larger batch will not fit", _SMALLER
        return self.claim(
            record,
            severity,
            f"the allocator flushed its whole cache and tried again {plural(retries, 'time')} in the last "
            f"{plural(seen, 'batch')} (num_alloc_retries){called(record, run)}: "
            f"{why.format(_what_is_shared(run))}{_left(record, run)}.",
            advice,
            place=call_of(record, run),
        )


_SMALLER = (
    "reduce the batch size a little, or free what other findings name; with much reserved and unused memory, set "
    "PYTORCH_ALLOC_CONF=expandable_segments:True."
)
_SIZES = (
    "set PYTORCH_ALLOC_CONF=expandable_segments:True, or make sizes repeat: pad or bucket, and write into a tensor of "
    "the final size instead of making a larger one each time (torch.cat). A smaller batch only puts it off."
)


def _room(record: BatchRecord, run: Run) -> int | None:
    """What the peak leaves, if nothing lies in pieces: of the device beside others, and of this process's share."""
    limit, peak = limit_of(run), record.allocated_peak_bytes
    if limit is None or peak is None:
        return None
    foreign = max((record.device_used_bytes or 0) - (record.reserved_peak_bytes or 0), 0)
    return max(min(limit, (run.device_total_bytes or limit) - foreign) - peak, 0)


def _is_roomy(record: BatchRecord, run: Run) -> bool:
    """Whether much is left at the peak: the cache was in the way, not the tensors."""
    room = _room(record, run)
    return room is not None and room >= ROOMY * (limit_of(run) or 0)


def _left(record: BatchRecord, run: Run) -> str:
    """How far away the error is, in bytes."""
    room = _room(record, run)
    return "" if room is None else f": at the peak {format_bytes(room)} of {format_bytes(limit_of(run))} are left"


@final
class StreamHeld(Rule, code="MG404", name="stream-held", hears=DEVICE):
    """Memory that Python freed waits for another stream.

    What: active memory has been far above allocated memory in twenty of the last batches: blocks of tensors that are
    gone, but that ``record_stream`` keeps until another stream is done with them.

    Why it matters: the memory cannot be used again yet, so the peak is higher than the tensors alone explain.

    How to fix: wait for the work (``work.wait()``) before the tensor is dropped; for NCCL in older versions
    ``TORCH_NCCL_AVOID_RECORD_STREAMS=1``; prefer events to ``record_stream`` in copies of your own.
    """

    def __init__(self) -> None:
        self._recent: deque[bool] = deque(maxlen=STREAM_RECENT)
        self._told = False

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Claim]:
        """Counts batches whose active peak lies far above the allocated one."""
        total, active, allocated = limit_of(run), record.active_peak_bytes, record.allocated_peak_bytes
        if self._told or not total or active is None or allocated is None:
            return
        held = active - allocated
        self._recent.append(held > STREAM_SHARE * total)
        if not self._recent[-1] or sum(self._recent) < STREAM_BATCHES:
            return
        self._told = True
        yield self.claim(
            record,
            Severity.WARNING,
            f"{format_bytes(held)} at the peak were freed by Python and still wait for another stream, as in "
            f"{sum(self._recent)} of the last {len(self._recent)} batches (active above allocated).",
            "wait for asynchronous work before its tensors are dropped; for NCCL set "
            "TORCH_NCCL_AVOID_RECORD_STREAMS=1.",
            nbytes=held,
        )
