"""MG301 and MG302: detached tensors that pile up, views that hold more than they show; copies of weights among them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import final

from memguard.records.claims import Claim, Evidence
from memguard.records.facts import Fact, KeptOutputs, ModelCopies, RanOutOfMemory, ViewsPinStorage
from memguard.records.findings import Severity
from memguard.records.stats import BatchRecord, Run, Series, Stage, limit_of, room_of
from memguard.rules.finding_text import REMEDY_OF_NUMBERS, holder, in_memory, is_on_host, plural, so_far
from memguard.rules.growth_test import WARM_UP, GrowthTest, TrainingFloor
from memguard.rules.interface import Rule
from memguard.text.units import format_bytes
from memguard.thresholds import EXPLAINED

TIMES_A_COPY = 4
"""What an element may hold of a copy: an optimizer's state lies beside the weights."""
LEAST_OF_COPY = 0.9
"""What it must hold, where only one was seen."""
MIN_SHARE = 0.01
"""Of the device, taken by copies under one name, or by a checkpoint: those of a small model matter to nobody."""


@final
class Snapshots:
    """The pile of copies that was told last."""

    def __init__(self) -> None:
        self._pile: ModelCopies | None = None
        self._one: ModelCopies | None = None
        """Copies no two of which lay under one name when they were told; others may have come since."""

    def learn(self, fact: Fact) -> None:
        """Remembers copies of which several lie under one name, or models of which more come with each round."""
        if not isinstance(fact, ModelCopies) or fact.averaged or fact.passing:
            return
        if is_piled(fact):
            self._pile = fact
        else:
            self._one = fact

    def explain(self, fact: KeptOutputs) -> ModelCopies | None:
        """The pile that something kept is, by its place and by the size of its elements."""
        if not fact.tensors or fact.place.file is None:
            return None
        each, place = fact.bytes / fact.tensors, fact.place
        pile, one = self._pile, self._one
        if pile is not None and place.file == pile.place.file:
            same = place.holder == pile.place.holder or place.line == pile.place.line
            if same and each <= TIMES_A_COPY * pile.bytes / pile.copies:
                return pile
        if one is None or (place.file, place.line, place.holder) != (one.place.file, one.place.line, one.place.holder):
            return None
        copy = one.bytes / one.copies
        is_one = LEAST_OF_COPY * copy <= each <= TIMES_A_COPY * copy
        return replace(one, copies=fact.tensors, bytes=fact.bytes) if is_one else None


def is_piled(fact: ModelCopies) -> bool:
    """Whether there are more than one under a name, which no function ends with, and which has no limit."""
    return fact.copies > max(len(fact.holders), 1) and not fact.passing and not fact.limited


def is_large_pile(fact: ModelCopies, limit: int | None) -> bool:
    """Whether they are that, and worth a warning on a device of that size."""
    return is_piled(fact) and (limit is None or fact.bytes >= MIN_SHARE * limit)


MIN_VIEW_BYTES = 64 * 1024**2
MIN_VIEW_SHARE = 0.01
MIN_TOLD_BYTES = 1024**2
"""Pinned by views that end with their pass: worth a word, no warning."""
MIN_VIEW_BYTES_PER_BATCH = 4096
"""Pinned by each of the views that come with every batch."""
TIMES = 8
MIN_BATCHES = 8
MIN_BYTES_PER_BATCH = 1024
MIN_SHARE_PER_BATCH = 1 / 75_000
"""Of the device: less with every batch fills it after 75,000 of them. A remark, until the floor shows that it does."""

MIN_SHARE_OF_NUMBERS = 1e-3
"""The same of numbers that look harmless: a log of losses, each with the storage of its elements (``mse_loss``).

Less is a remark, until the floor shows that it will fill the device."""
_REMEDY_ON_HOST = (
    "keep what is computed from them, or update a metric instead, and clear what is kept when the epoch ends."
)
_REMEDY = "keep them on the CPU (x.cpu()), or update a metric instead, and clear what is kept when the epoch ends."


@final
class OutputsAccumulate(Rule, code="MG301", name="outputs-accumulate"):
    """Detached outputs, metric states or validation outputs pile up on the device.

    What: tensors of many batches are kept on the device without a graph: a list of predictions, ``outputs`` kept until
    the end of an epoch, a metric with list states, the results of each evaluation. A cache with keys that never recur
    is reported as MG501.

    Why it matters: it grows by the same amount with every batch. Kept to the end of a long validation it may not fit;
    kept over epochs it never stops.

    How to fix: update a metric instead of keeping outputs, or keep them on the CPU (``.cpu()``,
    ``compute_on_cpu=True``); for curves use ``thresholds=``; clear the list at the end of the epoch.
    """

    def __init__(self) -> None:
        self._snapshots = Snapshots()
        self._newest: dict[Stage, BatchRecord] = {}
        self._mild: KeptOutputs | None = None
        """What was remarked on or warned of in training; whether it fills the device the floor shows."""
        self._floor: TrainingFloor | None = None
        self._told: list[KeptOutputs] = []
        """What was told with a warning."""

    def observe(self, record: BatchRecord, run: Run) -> Iterable[Claim]:
        """Learns how far this pass is; a remark may turn out to be more than that."""
        self._newest[record.stage] = record
        fact, end = self._mild, record.allocated_end_bytes
        if fact is None or self._floor is None or record.stage is not Stage.TRAIN or end is None:
            return ()
        peak = record.allocated_peak_bytes or end
        shown = self._floor.observe_alike((record,), run, end=end, peak=peak, limit=lambda: limit_of(run))
        if not shown or fact.bytes_per_batch < EXPLAINED * shown[0][1].growth.rate or fits(fact, run):
            return ()
        found = shown[0][1]
        message = (
            f"{holder(fact.place)} keeps tensors of every batch {in_memory(run)}, {format_bytes(fact.bytes_per_batch)} "
            f"each: at this rate memory reaches the limit of {format_bytes(limit_of(run))} in about "
            f"{found.batches_to_limit} batches."
        )
        return (self._worse(fact, message, record.batch, round(found.growth.observed)),)

    def observe_alike(self, records: Series, run: Run) -> Iterable[Claim]:
        """How far the pass is the last one tells."""
        if self._mild is not None:
            return super().observe_alike(records, run)
        self._newest[records[-1].stage] = records[-1]
        return ()

    def _worse(self, fact: KeptOutputs, message: str, batch: int, nbytes: int | None) -> Claim:
        """What was remarked on, or warned of, is critical after all."""
        self._mild = self._floor = None
        remedy = fact.remedy or _REMEDY
        return self.claim(
            replace(fact, batch=batch),
            Severity.CRITICAL,
            message,
            remedy,
            nbytes=nbytes,
            bytes_per_batch=fact.bytes_per_batch,
            evidence=Evidence.GROWTH,
        )

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes: critical if it will not fit, a warning if it never stops, else only told."""
        if isinstance(fact, RanOutOfMemory):
            mild, leaked = self._mild, fact.cause == "leak" and not fact.caught
            if mild is not None and leaked and fact.holder in (None, mild.place.holder):
                yield self._worse(mild, f"memory ran out. {fact.why}", fact.batch, fact.bytes)
            return
        self._snapshots.learn(fact)
        if not isinstance(fact, KeptOutputs) or not is_pile(fact) or fact.cached or fact.weights:
            return  # MG501 tells of caches, MG308 of models
        overfills = fact.capacity is not None and room_of(run) is not None and not fits(fact, run)
        if overfills:  # its limit might as well be none
            fact = replace(fact, bounded=False)
        left = fact.batches_left
        if left is None:
            left = self._left(fact.stage, run) if fact.bounded or fact.stage.evaluates else run.batches_left
        severity = Severity.WARNING if never_stops(fact, run) else Severity.INFO
        beside = self._beside(fact)
        if severity is Severity.WARNING and beside is not None:
            severity = Severity.INFO  # one cause, one warning
        elif fact.stage is Stage.TRAIN:
            self._mild = fact  # and the batches before it were a warm-up as well
            self._floor = self._floor or TrainingFloor(GrowthTest(warm_up=max(WARM_UP - fact.batch, 0)))
        room = room_of(run)
        overflows = room is not None and left is not None and fact.bytes_per_batch * left > room
        if self._snapshots.explain(fact) is not None and not (fact.bounded and overflows):
            return  # MG308 tells of them
        what = what_is_kept(fact)
        if fact.numbers:
            what = f"{plural(fact.tensors, 'number')}, each with the storage it was computed in,"
        if severity is not Severity.INFO:
            self._told.append(fact)
        more = f", {format_bytes(fact.bytes_per_batch)} more with every batch" if fact.bytes_per_batch else ""
        if fact.capacity is not None and overfills:
            full = fact.capacity * fact.bytes // fact.tensors
            more += f"; its limit of {fact.capacity:,} comes to {format_bytes(full)}, more than there is room for"
        elif fact.capacity is not None and fact.tensors >= fact.capacity:
            more = "; it is full, and grows no further"
        elif left and more:
            more += f"; {plural(left, 'batch')} to come bring {format_bytes(left * fact.bytes_per_batch)} more"
        yield self.claim(
            fact,
            severity,
            f"{who_keeps(fact, beside)} {what} since batch {fact.first_batch} {in_memory(run)}: "
            f"{format_bytes(fact.bytes)}{so_far(run)}{more}.",
            fact.remedy or (REMEDY_OF_NUMBERS if fact.numbers else _REMEDY_ON_HOST if is_on_host(run) else _REMEDY),
            nbytes=fact.bytes,
            bytes_per_batch=fact.bytes_per_batch,
            evidence=Evidence.GROWTH if fact.bytes_per_batch else Evidence.HELD,
            count=fact.tensors,
            since=fact.first_batch,
            batches_left=left if left is not None else 0,
            is_limited=beside is not None
            or fits(fact, run)
            or (fact.bounded and fact.learned_from)
            or not fact.bytes_per_batch,
            ends=fact.bounded,
            names=fact.parts,
        )

    def _beside(self, fact: KeptOutputs) -> str | None:
        """The name that a statement next to this one fills, where a warning of it was given."""
        near = (told for told in self._told if told.stage is fact.stage and fact.place.is_beside(told.place))
        return next((told.place.holder for told in near), None)

    def _left(self, stage: Stage, run: Run) -> int | None:
        """Batches of this pass that are still to come, where its length is known."""
        newest, length = self._newest.get(stage), run.batches_per_epoch.get(stage)
        if newest is None or newest.index is None or length is None:
            return None
        return max(length - newest.index - 1, 0)


def fits(fact: KeptOutputs, run: Run) -> bool:
    """Whether there is room for all that it can have, where that is known: a memory of so many samples."""
    room = room_of(run)
    if fact.capacity is None or room is None:
        return False
    return max(fact.capacity - fact.tensors, 0) * fact.bytes / fact.tensors <= room


def what_is_kept(fact: KeptOutputs) -> str:
    """What it keeps, and how many."""
    return fact.what.replace("{count}", f"{fact.tensors:,}") if fact.what else plural(fact.tensors, "tensor")


def who_keeps(fact: KeptOutputs, beside: str | None = None) -> str:
    """Who keeps it, and what is filled beside it."""
    names = " and ".join(f"`{name}`" for name in fact.beside)
    if names:
        return f"{holder(fact.place)} keeps, with {names} beside it,"
    return f"{holder(fact.place)}{f', filled beside `{beside}`,' if beside else ''} keeps"


def is_pile(fact: KeptOutputs) -> bool:
    """Whether it is more than the last few: so many elements, or most of what memory rose by."""
    return fact.tensors >= MIN_BATCHES or fact.measured


def never_stops(fact: KeptOutputs, run: Run) -> bool:
    """Whether nothing seems to bound it, and it is more than a log of numbers."""
    return not fact.bounded and is_pile(fact) and _matters(fact, run)


def _matters(fact: KeptOutputs, run: Run) -> bool:
    share = MIN_SHARE_OF_NUMBERS if fact.numbers else MIN_SHARE_PER_BATCH
    return fact.bytes_per_batch >= max(MIN_BYTES_PER_BATCH, share * (limit_of(run) or 0))


def views_are_much(fact: ViewsPinStorage, run: Run) -> bool:
    """Whether what small views keep is a warning: it grows, or it is much of the device."""
    total = limit_of(run)
    grows = fact.grows and fact.pinned_bytes >= MIN_VIEW_BYTES_PER_BATCH * fact.views
    return grows or fact.pinned_bytes >= (min(MIN_VIEW_BYTES, MIN_VIEW_SHARE * total) if total else MIN_VIEW_BYTES)


@final
class ViewPinsStorage(Rule, code="MG302", name="view-pins-storage"):
    """A small view keeps a large storage.

    What: a slice such as ``x[:, 0]`` or ``logits[-1]`` is kept, and nothing else uses the tensor that it is a slice of.

    Why it matters: a view shares the whole storage of its base. A few numbers per batch keep megabytes alive, and no
    tool that adds up tensor sizes shows them.

    How to fix: ``x[:, 0].clone()``; ``.contiguous()`` is not enough, for it copies nothing if the slice is contiguous.
    """

    def learn(self, fact: Fact, run: Run) -> Iterable[Claim]:
        """Concludes where the views use less than an eighth of much memory, or of memory that grows."""
        if not isinstance(fact, ViewsPinStorage) or fact.used_bytes * TIMES >= fact.pinned_bytes:
            return
        warns = views_are_much(fact, run)
        if not warns and fact.pinned_bytes < MIN_TOLD_BYTES:
            return
        yield self.claim(
            fact,
            Severity.WARNING if warns else Severity.INFO,
            f"{holder(fact.place)} uses {format_bytes(fact.used_bytes)} in {plural(fact.views, 'view')} and keeps "
            f"{format_bytes(fact.pinned_bytes)} of storage alive.",
            "clone the slice before keeping it: x[:, 0].clone().",
            nbytes=fact.pinned_bytes,
            evidence=Evidence.GROWTH if fact.grows else Evidence.HELD,
            count=fact.views,
        )
