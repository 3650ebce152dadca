"""MG502, MG503 and MG504: what will not fit, reported before it happens."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import final

from memguard.records.claims import Claim
from memguard.records.facts import (
    NOWHERE,
    Fact,
    InputSize,
    KeptOutputs,
    ModelCalled,
    OptimizerStateAhead,
    Place,
    RanOutOfMemory,
    RetainedGraphs,
)
from memguard.records.findings import Severity
from memguard.records.stats import BatchRecord, Run, SlowStats, Stage, limit_of
from memguard.rules.finding_text import call_of, called, from_post_mortem
from memguard.rules.interface import CROWDED, DEVICE, Rule
from memguard.text.units import format_bytes

MIN_POINTS = 12
"""Batches of different sizes that make a line."""
KEPT_PEAKS = 64
"""Batches whose size may come later than their record."""
FAR = 2
"""Times the limit, which a curve must reach that is followed further than it is good for; then it is worth a line."""
RISE = 0.5
"""Of what sorted batches rose so far, within which the device must be full for that to be worth a line."""
SETTLING_BATCHES = 3
"""First sizes that are left out: the optimizer's state and workspaces come with them."""
LOW_SHARE = 0.97
QUIET_BATCHES = 3
RISE_SHARE = 0.0005
"""Of the device, by which more stays after a batch than after the last such one: it grows."""


@final
class OptimizerState(Rule, code="MG502", name="optimizer-state"):
    """The first optimizer step will not fit.

    What: before the first step, what the optimizer will allocate in it (two tensors per parameter for the Adam family,
    one for SGD with momentum) is added to the peak of the first batch, and the sum is more than the device has.

    Why it matters: the first forward and backward run well, then the first step or the second batch fails.

    How to fix: an 8-bit or fused optimizer, ``foreach=False``, sharding (FSDP, ZeRO), fewer trainable parameters
    (LoRA), or a smaller batch.
    """

    def __init__(self) -> None:
        self._told = False
        self._places: dict[str, Place] = {}

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Adds the state to the peak; or hears that it did not fit, where that was not to be foreseen."""
        if isinstance(fact, OptimizerStateAhead):
            self._places[fact.optimizer] = fact.place
        elif isinstance(fact, RanOutOfMemory) and (place := self._places.get(fact.holder or "")):
            fact = replace(fact, place=place)  # the error may have come in the batch after the step
        found = None if self._told else from_post_mortem(self, fact, "optimizer-state")
        if found is not None:
            self._told = True
            yield found
        limit = limit_of(run)
        if not isinstance(fact, OptimizerStateAhead) or limit is None or fact.allocated_bytes is None:
            return
        at_step = fact.allocated_bytes + fact.state_bytes + fact.temporary_bytes
        needed = max(at_step, (fact.peak_bytes or 0) + fact.state_bytes)
        if needed <= limit:
            return
        self._told = True
        yield self.claim(
            fact,
            Severity.CRITICAL,
            f"the first {fact.optimizer} step will allocate {format_bytes(fact.state_bytes)} of state: with this "
            f"batch's peak that is {format_bytes(needed)}, and the device has {format_bytes(limit)}: "
            f"{format_bytes(needed - limit)} too little.",
            "use an optimizer with less state (8-bit, SGD), foreach=False or fused=True, shard it, or make the batch "
            "smaller.",
            nbytes=needed - limit,
            name=fact.optimizer,
        )


@final
class LongestBatch(Rule, code="MG503", name="longest-batch", hears=DEVICE):
    """The longest batch to come will not fit.

    What: over batches of at least twelve sizes the peak follows the size of the input along a line or a curve. For the
    longest sample in the dataset, that curve is above the limit. If that sample is more than four times as long as all
    so far, the rule reports it as a remark, and only if it is far above. It also reports a batch that failed and was
    far longer than all before, and batches that grow steadily where the longest sample is unknown.

    Why it matters: the run will fail at an unlucky batch, perhaps after hours.

    How to fix: let the longest batch come first (it fails immediately, or reserves what all others need); batch by
    number of tokens instead of samples; cut or drop extreme lengths.
    """

    def __init__(self) -> None:
        self._elements: dict[int, int] = {}
        self._peaks: dict[int, int] = {}
        self._points: list[tuple[int, int]] = []
        self._largest: InputSize | None = None
        self._seen = 0
        self._told = self._told_far = False

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Remembers a batch's size, and the largest to come; or hears that a long one failed."""
        found = None if self._told else from_post_mortem(self, fact, "long-batch")
        if found is not None:
            self._told = True
            yield found
        if isinstance(fact, InputSize) and not self._told:
            self._elements[fact.batch] = fact.elements
            if fact.largest_elements is not None:
                self._largest = fact
            yield from self._judge(fact, run)

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Claim]:
        """Remembers the peak of a batch; its size may be told before or after."""
        if record.stage is not Stage.TRAIN or record.allocated_peak_bytes is None or self._told:
            return ()
        self._peaks[record.batch] = record.allocated_peak_bytes
        if len(self._peaks) > KEPT_PEAKS:
            del self._peaks[next(iter(self._peaks))]
        return self._judge(record, run) if self._elements else ()

    def _judge(self, of: InputSize | BatchRecord, run: Run) -> Iterable[Claim]:
        batch = of.batch
        if batch not in self._elements or batch not in self._peaks:
            return
        elements, limit = self._elements.pop(batch), limit_of(run)
        self._seen += 1
        if self._seen > SETTLING_BATCHES:
            self._points.append((elements, self._peaks[batch]))
        largest = self._largest.largest_elements if self._largest is not None else None
        if limit is None or len(self._points) < MIN_POINTS:
            return
        if self._largest is None or largest is None:
            yield from self._judge_rising(batch, limit, run)
            return
        curve, seen = fit(self._points), max(size for size, _ in self._points)
        if curve is None or largest <= seen:
            return
        predicted = curve.at(largest)
        is_far = curve.bend > 0 and largest > REACH * seen
        if predicted <= (FAR * limit if is_far else limit) or (is_far and self._told_far):
            return
        grows = f"with the input, by {format_bytes(curve.slope * 1000)} for 1000 elements"
        if curve.bend:
            grows = "faster than the input, as that of attention or of pairs of positions"
        self._told, self._told_far = not is_far, is_far
        yield self.claim(
            self._largest,
            Severity.INFO if is_far else Severity.WARNING,
            f"the peak grows {grows}. The longest sample of `{self._largest.samples or 'the dataset'}` will "
            f"make a batch of {largest} elements, {largest / elements:.1f} times this one, that needs about "
            f"{format_bytes(predicted)}{' (an estimate from much shorter batches)' if is_far else ''}; the device has "
            f"{format_bytes(limit)}, enough for at most about {int(curve.reach(limit)):,} elements.",
            "let the longest batch come first, so that it fails immediately; batch by number of tokens, or cut extreme "
            "lengths.",
            nbytes=round(predicted - limit),
        )

    def _judge_rising(self, batch: int, limit: int, run: Run) -> Iterable[Claim]:
        """Nobody knows the longest batch, yet they come sorted: by half of what they rose so far they will not fit."""
        sizes = [size for size, _ in self._points]
        if self._told_far or any(after <= before for before, after in itertools.pairwise(sizes)):
            return
        curve = fit(self._points)
        fits = int(curve.reach(limit)) if curve is not None else 0
        if not sizes[-1] < fits <= sizes[-1] + RISE * (sizes[-1] - sizes[0]):
            return
        self._told_far = True
        place = run.calls.get(Stage.TRAIN, NOWHERE)
        yield self.claim(
            ModelCalled(batch=batch, stage=Stage.TRAIN, place=place),
            Severity.INFO,
            f"each batch is larger than the one before it, and the peak follows: now {sizes[-1]:,} elements come in, "
            f"and the device has room for at most about {fits:,}, by the curve of the peaks (not tried).",
            "let the longest batch come first, so that it fails immediately; batch by number of tokens, or cut extreme "
            "lengths.",
        )


@final
class LowHeadroom(Rule, code="MG504", name="low-headroom", hears=CROWDED):
    """Less than 3 % of the device is left at the peak.

    What: the peak of allocated memory, with what other processes and libraries hold, comes within 3 % of the device's
    capacity, or of the share that ``set_per_process_memory_fraction`` leaves to this process.

    Why it matters: fragmentation, a slightly larger batch or a library's workspace is enough for an out-of-memory
    error.

    How to fix: a slightly smaller batch, gradient accumulation, mixed precision or activation checkpointing.
    """

    def __init__(self) -> None:
        self._high = 0
        self._slow: SlowStats | None = None
        self._own = self._own_before = 0
        """The most that this process reserved since the newest reading of the driver, and from the one before to it."""
        self._end: int | None = None
        """What stayed after the last batch that came so near."""
        self._grows = False
        """Whether something was seen to keep tensors of many batches: it is told of, with what is left."""
        self._told = False

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Hears of what makes memory grow."""
        self._grows = self._grows or isinstance(fact, (KeptOutputs, RetainedGraphs))
        return ()

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Claim]:
        """Compares the peak with what there is; three such batches make it a habit."""
        total, peak = run.device_total_bytes, record.allocated_peak_bytes
        if self._told or not total or peak is None or run.device == "cpu":
            return
        outside = self._outside(record, run) if record.reserved_bytes else 0
        needed, limit = peak + outside, limit_of(run) or total
        if limit - peak < total - needed:  # the process's own share ends before the device does
            needed, total, outside = peak, limit, 0
        if needed <= LOW_SHARE * total:
            return
        end, before = record.allocated_end_bytes or 0, self._end
        self._end = end
        if self._grows and before is not None and end - before >= RISE_SHARE * total:
            return  # no smaller batch helps
        self._high += 1
        if self._high < QUIET_BATCHES:
            return
        self._told = True
        others = f" ({format_bytes(outside)} belong to others and to libraries)" if outside else ""
        yield self.claim(
            record,
            Severity.WARNING,
            f"at the peak {format_bytes(max(total - needed, 0))} of {format_bytes(total)} are left"
            f"{called(record, run)}{others}: a slightly larger batch or a little fragmentation is enough to fail.",
            "make the batch slightly smaller, or use mixed precision, gradient accumulation or activation "
            "checkpointing.",
            nbytes=max(total - needed, 0),
            place=call_of(record, run),
        )

    def _outside(self, record: BatchRecord, run: Run) -> int:
        """What others and libraries hold: the driver's reading, less what PyTorch had reserved when it was taken.

        Where that is unknown, less the most that it may have had: the reading is some batches old, and the cache may
        have been flushed since.
        """
        slow = run.slow
        if slow.device_used_bytes is not None and slow.process_reserved_bytes is not None:
            return max(slow.device_used_bytes - slow.process_reserved_bytes, 0)
        if run.slow is not self._slow:
            self._slow, self._own, self._own_before = run.slow, 0, self._own
        self._own = max(self._own, record.reserved_peak_bytes or 0, record.reserved_bytes or 0)
        return max((record.device_used_bytes or 0) - max(self._own, self._own_before), 0)


REACH = 4
"""How far beyond the largest size a bent curve is followed: further out, small errors decide."""
LINE_RESIDUAL, BENT_RESIDUAL = 0.1, 0.05
"""Medians of what is left between points and curve, as shares of the height that they span."""

Points = list[tuple[int, int]]


@final
@dataclass(frozen=True, slots=True)
class SizeCurve:
    """``base + slope * size + bend * size ** 2``."""

    base: float
    slope: float
    bend: float = 0.0

    def at(self, size: float) -> float:
        """Bytes that an input of a size needs."""
        return self.base + self.slope * size + self.bend * size * size

    def reach(self, nbytes: float) -> float:
        """The size of the input that needs so many bytes."""
        if not self.bend:
            return (nbytes - self.base) / self.slope
        root = math.sqrt(max(self.slope**2 + 4 * self.bend * (nbytes - self.base), 0.0))
        return (root - self.slope) / (2 * self.bend)


def fit(points: Points) -> SizeCurve | None:
    """The curve through points by the medians of their thirds; None if they lie on none, or on one that falls.

    A bent one is taken only where it leaves half of what the line leaves between itself and the points.
    """
    if len(points) < 3:
        return None
    (x1, y1), (x2, y2), (x3, y3) = _medians(points)
    if x3 <= x1 or y3 <= y1:
        return None
    slope = (y3 - y1) / (x3 - x1)
    line = SizeCurve(y1 - slope * x1, slope)
    of_line = _residual(line, points) / (y3 - y1)
    if x1 < x2 < x3:
        bend = ((y3 - y2) / (x3 - x2) - (y2 - y1) / (x2 - x1)) / (x3 - x1)
        rise = (y2 - y1) / (x2 - x1) - bend * (x1 + x2)
        bent = SizeCurve(y1 - rise * x1 - bend * x1 * x1, rise, bend)
        of_bent = _residual(bent, points) / (y3 - y1)
        if bend > 0 and of_bent <= BENT_RESIDUAL and 2 * of_bent < of_line:
            return bent
    return line if of_line <= LINE_RESIDUAL else None


def _medians(points: Points) -> list[tuple[float, float]]:
    """Medians of the smaller, the middle and the larger points; of sizes and of bytes."""
    ordered = sorted(points)
    third = max(len(ordered) // 3, 1)
    parts = (ordered[:third], ordered[third:-third], ordered[-third:])
    return [(statistics.median(x for x, _ in part), statistics.median(y for _, y in part)) for part in parts]


def _residual(curve: SizeCurve, points: Points) -> float:
    return statistics.median(abs(y - curve.at(x)) for x, y in points)
