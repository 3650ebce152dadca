"""Memory statistics, records of batches, and the stages of a training loop.

The loop, with every event that memguard hears (an integration translates its host's hooks to these)::

    stage_start(TRAIN)
    for batch in loader:                     # batches are counted over all stages, and only ever grow
        batch_start(TRAIN, epoch, index, shapes)
        output = model(batch)                #   forward_start, forward_end     (probes)
        loss.backward()                      #   backward_start, backward_end   (probes)
        optimizer.step()                     #   optimizer_step
        batch_end()                          # -> BatchRecord -> detectors -> Finding -> sinks
        if time_to_validate:
            stage_start(VALIDATION)
            for batch in val_loader:         #   batch_start, forward..., batch_end
            stage_end(VALIDATION)
        if time_to_save:
            stage_start(CHECKPOINT); save(); stage_end(CHECKPOINT)
    stage_end(TRAIN)

Records tile the time: the peak of a record covers everything since the record before it, so that what happens between
two batches (moving the next one to the device, a checkpoint, a logger) is charged to somebody and no spike is lost.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memguard.records.facts import Place


class Stage(enum.Enum):
    """What the loop is doing; the value is the name in files and messages, the order is the code on disk."""

    SANITY = "sanity"
    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"
    PREDICT = "predict"
    CHECKPOINT = "checkpoint"
    OTHER = "other"

    __hash__ = object.__hash__  # Enum's own is a function in Python, called for each lookup of a stage

    @property
    def evaluates(self) -> bool:
        """Whether no gradient is wanted in this stage."""
        return self in (Stage.SANITY, Stage.VALIDATION, Stage.TEST, Stage.PREDICT)


STAGES: tuple[Stage, ...] = tuple(Stage)


@dataclass(slots=True, kw_only=True)  # frozen ones take four times as long to make, and each batch makes one
class MemoryStats:
    """One look at a device's memory, in PyTorch's words; None is what this device does not tell. Never changed.

    Peaks are those since the previous boundary; counters are cumulative since the process began.
    """

    allocated_bytes: int | None = None
    allocated_peak_bytes: int | None = None
    reserved_bytes: int | None = None
    reserved_peak_bytes: int | None = None
    active_bytes: int | None = None
    active_peak_bytes: int | None = None
    inactive_split_bytes: int | None = None
    num_alloc_retries: int | None = None
    num_ooms: int | None = None
    num_device_alloc: int | None = None
    num_device_free: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowStats:
    """What is too dear to ask for in every batch; the slow lane asks every second or few. None is unknown."""

    device_total_bytes: int | None = None
    """Capacity of the device, as its driver reports it."""
    device_used_bytes: int | None = None
    """In use on the device by all processes."""
    process_used_bytes: int | None = None
    """In use on the device by this process, its CUDA context included."""
    process_reserved_bytes: int | None = None
    """Reserved by PyTorch's allocator while the driver was read: the rest of what is in use is outside of it."""
    other_processes: tuple[tuple[int, int | None], ...] | None = None
    """Other processes on the device: (pid, bytes or None where the driver hides it)."""
    process_groups: int | None = None
    """Process groups with NCCL that this process has made, and not destroyed."""
    host_rss_bytes: int | None = None
    host_rss_peak_bytes: int | None = None
    host_limit_bytes: int | None = None
    """What the kernel will kill this process at: the cgroup's limit, or all RAM."""
    host_used_bytes: int | None = None
    """In use under that limit (cgroup v2 without reclaimable page cache, or total minus available)."""
    host_available_bytes: int | None = None
    workers_rss_bytes: int | None = None
    """Private memory of the process's children (DataLoader workers), together."""
    num_workers: int | None = None
    pinned_bytes: int | None = None
    """Held by PyTorch's pinned-memory cache."""
    pinned_active_bytes: int | None = None
    shm_free_bytes: int | None = None
    shm_total_bytes: int | None = None
    open_files: int | None = None


@dataclass(slots=True)  # not frozen, as above; its maker gives the fields by position, in a third of the time
class BatchRecord:
    """The memory of one batch (or of one checkpoint, or another stretch between two boundaries). Never changed."""

    batch: int
    """Number of this record in the run, over all stages; only ever grows."""
    stage: Stage
    """What the loop did."""
    time: float
    """Seconds since 1970 at the end of the batch."""
    seconds: float
    """Duration."""
    epoch: int | None = None
    """Number of the epoch; None where the loop has none."""
    index: int | None = None
    """Number of the batch within its stage and epoch."""
    optimizer_steps: int = 0
    """Optimizer steps of the run before the end of this batch."""
    shapes: int | None = None
    """Number of the input shapes in the run's table of shapes."""
    allocated_start_bytes: int | None = None
    """In tensors on the device as the batch began."""
    allocated_peak_bytes: int | None = None
    """Highest of that since the record before: what `torch.cuda.max_memory_allocated` would say."""
    allocated_end_bytes: int | None = None
    """In tensors on the device as the batch ended."""
    reserved_bytes: int | None = None
    """Held by PyTorch's allocator at the end: tensors and its cache."""
    reserved_peak_bytes: int | None = None
    """Highest of that since the record before."""
    active_peak_bytes: int | None = None
    """Highest in blocks that are in use or wait for a stream."""
    inactive_split_bytes: int | None = None
    """In free pieces of segments that are partly in use, at the end: it cannot be given back."""
    device_used_bytes: int | None = None
    """In use on the device by all processes, as the driver last said."""
    host_rss_bytes: int | None = None
    """RAM of this process (resident set)."""
    num_alloc_retries: int | None = None
    """Retries of the allocator during this batch, as the three fields below."""
    num_ooms: int | None = None
    """Out-of-memory errors of the allocator during this batch, caught or not."""
    num_device_alloc: int | None = None
    """Segments that the allocator got from the driver during this batch."""
    num_device_free: int | None = None
    """Segments that it gave back."""
    device: int = 0
    """Position of the device in the run's list of devices."""


Series = Sequence[BatchRecord]
"""Records in a row that are alike: of one stage and epoch, with the same memory before and after, and no event of the
allocator. Numbers, times, optimizer steps and input shapes may differ. One that is like no other stands alone."""


@dataclass(slots=True, kw_only=True)
class Run:
    """What detectors may know of the run besides its records; the recorder keeps it up to date."""

    device: str
    """Like ``"cuda:0"``, ``"cpu"``, ``"virtual:24GiB"``."""
    device_name: str | None = None
    device_total_bytes: int | None = None
    limit_bytes: int | None = None
    """What the allocator may take: the total, less what others hold, or the per-process fraction."""
    rank: int = 0
    world_size: int = 1
    epoch: int | None = None
    batches_per_epoch: dict[Stage, int] = field(default_factory=dict)
    """Batches of one pass over each stage's loaders, where known."""
    batches_left: int | None = None
    """Training batches to come, where known."""
    calls: dict[Stage, Place] = field(default_factory=dict)
    """The lines that call the model, the first of each stage."""
    slow: SlowStats = field(default_factory=SlowStats)
    """The newest reading of the slow lane."""
    peak_bytes: int | None = None
    """The highest allocated bytes so far; None where no record told any."""
    ended: bool = False
    """Whether the last batch is over: what is told now is not "so far"."""


def limit_of(run: Run) -> int | None:
    """What the process may take of the device; None where that is unknown."""
    return run.limit_bytes if run.limit_bytes is not None else run.device_total_bytes


def room_of(run: Run) -> int | None:
    """Bytes between the highest peak and the limit; None where either is unknown."""
    limit = limit_of(run)
    return None if limit is None or run.peak_bytes is None else max(limit - run.peak_bytes, 0)
