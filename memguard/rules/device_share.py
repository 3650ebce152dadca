"""MG601, MG602 and MG603: who else is on the device, and who is on the wrong one."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import final

from memguard.records.claims import Claim
from memguard.records.facts import Fact, OtherDevice, RankPeaks
from memguard.records.findings import Severity
from memguard.records.stats import BatchRecord, Run, SlowStats
from memguard.rules.interface import DEVICE, Rule
from memguard.text.units import format_bytes
from memguard.thresholds import EXPLAINED

REMEDY_OF_GROUPS = (
    "make fewer process groups: use one again for the same ranks, and destroy_process_group(group) those that are done "
    "with; NCCL_BUFFSIZE and NCCL_MAX_CTAS make the buffers of each smaller."
)
AT_START, GROWN = 0.15, 0.05
BASELINE_BATCH = 3
CONFIRMED_SECONDS = 2.5
"""After which, if the slow lane has asked again, it was told the same."""
IMBALANCE, IMBALANCE_SHARE = 1.2, 0.05
FAR_ABOVE, FAR_ABOVE_SHARE = 4, 0.1
"""Times the median of the other ranks, and share of the device, from which on a higher peak is a warning."""


@final
class ForeignMemory(Rule, code="MG601", name="foreign-memory", hears=DEVICE):
    """Other processes, or context and libraries, hold much of the device.

    What: over 15 % of the device is in use outside this process's PyTorch allocator, or that share grew by 5 % of the
    device since the run began. Where it grew as this process made process groups, the finding says how much each took.

    Why it matters: the room is not what the data sheet says. Another process may take more at any moment, and then this
    one fails.

    How to fix: end forgotten processes (``nvidia-smi`` lists them), give each job a device of its own, or limit this
    process with ``torch.cuda.set_per_process_memory_fraction``. Make a process group once for the same ranks, and
    destroy those that are done with: NCCL takes buffers for each.
    """

    def __init__(self) -> None:
        self._baseline: int | None = None
        self._batches = 0
        self._told_start = False
        self._told_grown = False
        self._used: int | None = None
        self._since = 0.0
        self._own = self._own_before = self._own_ever = 0
        self._foreign_before: int | None = None
        self._last: BatchRecord | None = None
        self._slow: SlowStats | None = None
        self._seen: SlowStats | None = None
        self._groups = GroupsMemory()

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Claim]:
        """Compares what the driver says with what PyTorch reserved."""
        own, self._last = record.reserved_peak_bytes or record.reserved_bytes or 0, record
        if own > self._own:
            self._own = own
        slow, used = run.slow, record.device_used_bytes
        if used is None:  # no driver tells
            self._batches += 1
            return ()
        if slow is self._slow and used == self._used and record.time - self._since < CONFIRMED_SECONDS:
            self._batches += 1
            return ()  # in nearly every batch: the slow lane has something new to say every second or few
        return self._compare(own, record, run)

    def _compare(self, own: int, record: BatchRecord, run: Run) -> Iterable[Claim]:
        self._batches += 1
        total, used, reserved = run.device_total_bytes, record.device_used_bytes, record.reserved_bytes
        if not total or used is None or reserved is None or self._batches <= BASELINE_BATCH:
            return
        if run.device.startswith("virtual"):
            return  # nobody else is there: a difference is one of time
        self._own_ever = max(self._own_ever, self._own)
        if run.slow is not self._slow:
            self._slow = run.slow
            self._groups.learn(run.slow, used)
            yield from self._tell_start(others_bytes(run.slow), record, run)  # the driver lists them: that is sure
        if used == self._used:
            if record.time - self._since >= CONFIRMED_SECONDS and run.slow is not self._seen:
                self._since = float("inf")  # once for each reading: what this process ever held only grows
                yield from self._judge(max(used - self._own_ever, 0), record, run)
            return  # the slow lane has nothing new to say
        self._used, self._since, self._seen = used, record.time, run.slow
        # The reading is some batches old: whatever this process held since the reading before may be in it.
        newest = max(used - max(self._own, self._own_before), 0)
        self._own, self._own_before = own, self._own
        # What only one reading shows was this process between two looks: an error that flushed the cache, a capture.
        before, self._foreign_before = self._foreign_before, newest
        if before is None:
            self._baseline = newest
        else:
            yield from self._judge(min(newest, before), record, run)

    def _judge(self, foreign: int, record: BatchRecord, run: Run) -> Iterable[Claim]:
        """What two readings show at least, against the least before."""
        total = run.device_total_bytes or 0
        self._baseline = foreign if self._baseline is None else min(foreign, self._baseline)
        grown = foreign - self._baseline
        if grown > GROWN * total and not self._told_grown:
            self._told_grown = True
            what = f"grew by {format_bytes(grown)} since the run began, to {format_bytes(foreign)}"
            yield from self._tell(what, foreign, record, run, groups=self._groups.explain(grown))
        else:
            yield from self._tell_start(foreign, record, run)

    def finish(self, run: Run) -> Iterable[Claim]:
        """A run too short for a second reading is judged by its first, less all that this process ever held."""
        if self._last is not None and self._used is not None:
            own = max(self._own_ever, self._own)
            yield from self._tell_start(max(self._used - own, 0), self._last, run)

    def _tell_start(self, foreign: int, record: BatchRecord, run: Run) -> Iterable[Claim]:
        total = run.device_total_bytes
        if self._told_start or self._told_grown or not total or foreign <= AT_START * total:
            return
        self._told_start = True
        yield from self._tell(f"is {format_bytes(foreign)} of {format_bytes(total)}", foreign, record, run)

    def _tell(
        self, what: str, foreign: int, record: BatchRecord, run: Run, groups: str | None = None
    ) -> Iterable[Claim]:
        others = run.slow.other_processes
        pids = ", ".join(f"{pid}" for pid, _ in others[:5]) if others else ""
        yield self.claim(
            record,
            Severity.WARNING,
            f"memory in use on the device outside this process's PyTorch allocator {what}{_held_by(pids, groups)}.",
            REMEDY_OF_GROUPS
            if groups
            else "look for other processes with nvidia-smi; give the job a device of its own, or a smaller batch.",
            nbytes=foreign,
        )


def _held_by(pids: str, groups: str | None) -> str:
    if groups:
        return f": {groups}, for which NCCL takes buffers from the driver"
    return f" (processes {pids})" if pids else " (other processes, CUDA context, libraries)"


@final
class WrongDevice(Rule, code="MG602", name="wrong-device"):
    """A context or tensors on a device this rank does not own.

    What: this process holds memory on another device than its own; or its model is on the first device, though there
    is one for each of the machine's ranks.

    Why it matters: when every rank does so, usually on device 0, that device carries all of it and fails first.

    How to fix: ``torch.cuda.set_device(local_rank)`` before any other CUDA call, ``torch.load(map_location="cpu")``,
    and no bare ``.cuda()`` or ``"cuda:0"``.
    """

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes from memory seen on another device."""
        if not isinstance(fact, OtherDevice):
            return
        what = f"works on {fact.own_device} and holds {format_bytes(fact.bytes)} on {fact.device}"
        if fact.model:
            what = (
                f"works on {fact.device}, where it holds {format_bytes(fact.bytes)}, though {fact.own_device} is there "
                "for it: ranks without a device of their own all work on the first"
            )
        yield self.claim(
            fact,
            Severity.WARNING,
            f"rank {run.rank} {what}.",
            "call torch.cuda.set_device(local_rank) first, load checkpoints with map_location='cpu', and write no "
            "fixed device index.",
            nbytes=fact.bytes,
            name=fact.device,
        )


@final
class RankImbalance(Rule, code="MG603", name="rank-imbalance"):
    """One rank's peak is far above the others'.

    What: the highest peak among the ranks is over 1.2 times the lowest, by more than 5 % of the device. Where the high
    ranks are those of one pipeline stage, expert, other parallel axis or node, the finding names it, and why: larger
    inputs, more of the model, a finding of their own, or by elimination the activations of the batch.

    Why it matters: the fullest rank sets the batch size for all, and fails first.

    How to fix: batch by tokens so that ranks get equal work, and move what only rank 0 does (logging, sampling,
    gathering a checkpoint) off the device. Move layers between stages; balance the router of experts.
    """

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Compares the ranks' peaks."""
        if not isinstance(fact, RankPeaks) or len(fact.peaks) < 2 or not run.device_total_bytes:
            return
        high, low = max(fact.peaks, key=lambda p: p[1]), min(fact.peaks, key=lambda p: p[1])
        if high[1] <= IMBALANCE * low[1] or high[1] - low[1] <= IMBALANCE_SHARE * run.device_total_bytes:
            return
        yield self.claim(
            fact,
            Severity.WARNING if _is_far_above(fact, run.device_total_bytes) else Severity.INFO,
            f"rank {high[0]} peaks at {format_bytes(high[1])}, rank {low[0]} at {format_bytes(low[1])}.",
            "balance the batches by tokens, and keep extra work of single ranks off the device.",
            nbytes=high[1] - low[1],
        )


def _is_far_above(fact: RankPeaks, total_bytes: int) -> bool:
    """Whether most of the highest rank's peak is its own alone, and a good part of the device."""
    *others, high = sorted(peak for _, peak in fact.peaks)
    usual = median(others)
    return high >= FAR_ABOVE * usual and high - usual >= FAR_ABOVE_SHARE * total_bytes


@final
class GroupsMemory:
    """What this process held beyond its allocator, by the number of process groups that it had.

    NCCL takes a group's buffers when it first communicates: of an earlier number the least counts, of the newest what
    is held now.
    """

    def __init__(self) -> None:
        self._least: dict[int, int] = {}
        self._newest = (0, 0)

    def learn(self, slow: SlowStats, used_bytes: int | None) -> None:
        """One more reading.

        Args:
            slow: What the slow lane reads; how much this process has of the device, the driver may not tell.
            used_bytes: What all have of it.
        """
        used = slow.process_used_bytes
        if used is None and used_bytes is not None:
            used = used_bytes - others_bytes(slow)
        if used is not None and slow.process_reserved_bytes is not None:
            groups, held = slow.process_groups or 0, max(used - slow.process_reserved_bytes, 0)
            self._newest = groups, held
            self._least[groups] = min(held, self._least.get(groups, held))

    def explain(self, grown_bytes: int) -> str | None:
        """What groups took of a growth outside of the allocator, if most of it came as they were made."""
        (groups, held), fewest = self._newest, min(self._least, default=0)
        made, took = groups - fewest, held - self._least.get(fewest, 0)
        if made <= 0 or took < EXPLAINED * grown_bytes:
            return None
        if made == 1:
            return f"{format_bytes(took)} of that came as a process group was made"
        each = format_bytes(took // made)
        return f"{format_bytes(took)} of that came as {made} process groups were made, {each} for each"


def others_bytes(slow: SlowStats) -> int:
    """What the driver lists for other processes, as far as it does."""
    return sum(size for _, size in slow.other_processes or () if size is not None)
