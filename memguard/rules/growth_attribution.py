"""Follows reported memory to the end of the run, and checks it against the growth of the floor.

A probe measures when it looks, which is in few batches of a long run. The records have every batch: they say how many
came since, and by how much the floor of allocated memory rose. No torch.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, final

from memguard.records.facts import (
    ExceptionHolds,
    Fact,
    FreedByCollector,
    KeptOnHost,
    KeptOutputs,
    ModelCopies,
    RetainedGraphs,
    ViewsPinStorage,
)
from memguard.records.facts.storages import OF_BATCHES
from memguard.records.stats import Series, Stage
from memguard.thresholds import EXPLAINED

COUNTED: Final[Mapping[type[Fact], tuple[str, ...]]] = {
    RetainedGraphs: ("graphs",),
    ViewsPinStorage: ("views", "used_bytes"),
    KeptOnHost: ("elements",),
    ExceptionHolds: (),
    ModelCopies: ("copies",),
    FreedByCollector: ("circles", "outputs"),
}
"""What becomes more with the batches, beside the bytes."""
KINDS: Final[tuple[type[Fact], ...]] = (KeptOutputs, *COUNTED)
"""Facts of memory of which more may come."""
NOW_AND_THEN: Final = (ExceptionHolds, ModelCopies)
"""Those of which more comes with some batches only."""
WINDOWS: Final = 128
LEAST_WINDOWS: Final = 16
"""Most values that are remembered of a stage's floor, and fewest that tell how it rose."""
FLAT: Final = 0.05
"""Share of a growth by which the floor must rise from its first half to its second to show it."""
DOUBLED: Final = 2
"""Times what was told of that it must have become to be told anew while the run goes on."""


@final
class Batches:
    """Which batches were of which stage, as runs of record numbers."""

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: dict[Stage, list[list[int]]] = {}

    def observe(self, stage: Stage, first: int, count: int) -> None:
        """Takes note of some batches of one stage that follow each other."""
        runs = self._runs.setdefault(stage, [])
        if runs and runs[-1][1] == first:
            runs[-1][1] += count
        else:
            runs.append([first, first + count])

    def between(self, stage: Stage, first: int, last: int) -> int:
        """Batches of a stage from one record number to another, both counted."""
        runs = self._runs.get(stage, [])
        at = max(bisect.bisect_right(runs, first, key=lambda run: run[0]) - 1, 0)
        found = 0
        for start, end in runs[at:]:
            if start > last:
                break
            found += max(min(end, last + 1) - max(start, first), 0)
        return found


@final
class StageFloor:
    """What was allocated at the least after the batches of one stage, over windows that widen with the run."""

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows: list[tuple[int, int]] = []
        """The last record number of each, and the lowest value."""

    def observe(self, last: int, end_bytes: int) -> None:
        """Some batches after which it was so much."""
        self._windows.append((last, end_bytes))
        if len(self._windows) > WINDOWS:
            pairs = zip(self._windows[::2], self._windows[1::2], strict=False)
            self._windows = [(later[0], min(one[1], later[1])) for one, later in pairs]

    def bears_out(self, first: int, nbytes: float) -> bool:
        """Whether memory rose by any part of so much since a batch; also where nobody knows.

        What is let go with each sequence, like the keys and values of its attention, grows at any two looks, and the
        floor does not rise.
        """
        since = [lowest for last, lowest in self._windows if last >= first]
        if len(since) < LEAST_WINDOWS:
            return True
        middle = len(since) // 2
        return min(since[middle:]) - min(since[:middle]) >= FLAT * nbytes


@final
class AttributedGrowth:
    """One fact, and what the records said since.

    Args:
        fact: As it was measured.
        end_bytes: What was allocated after the newest batch of its stage then; None where nobody counts.
        span: Batches of its stage in which its memory came.
        lag: Batches of its stage since the last of those, whose memory was too young to be told of.
        rate: Bytes that came with each batch since it was told before, of what does not come with every one.
    """

    __slots__ = (
        *("_at_end", "_end", "_highest", "_newest", "_rate", "_span"),
        *("_batch", "_is_over", "_lag", "_later", "_told_later", "fact"),
    )

    def __init__(self, fact: Fact, end_bytes: int | None, span: int, lag: int = 0, rate: float | None = None) -> None:
        self.fact, self._rate = fact, rate
        self._at_end, self._span, self._lag = end_bytes, max(span, 1), lag
        self._end = self._newest = self._highest = end_bytes
        self._later = self._told_later = 0
        self._batch = fact.batch
        self._is_over = False

    def observe(self, records: Series) -> None:
        """Some more batches that are alike. What a pass of evaluation keeps may be let go where the pass ends."""
        first, fact = records[0], self.fact
        if first.stage is not fact.stage:
            if fact.stage.evaluates and first.stage is Stage.TRAIN and not isinstance(fact, FreedByCollector):
                end = first.allocated_end_bytes
                has_fallen = end is not None and self._at_end is not None and end < self._at_end
                self._is_over = self._is_over or has_fallen or _ends(fact)
            return
        if self._is_over:
            return
        self._later += len(records)
        self._batch = records[-1].batch
        if (end := first.allocated_end_bytes) is not None:
            # The last batch of a run ends where the program does: what was let go there was kept until then.
            self._end, self._newest = max(end, self._newest or 0), end
            self._highest = max(end, self._highest or 0)

    @property
    def has_doubled(self) -> bool:
        """Whether so much more came since it was told last that it is another matter."""
        return self._later + self._span >= DOUBLED * (self._told_later + self._span)

    def newest(self) -> Fact:
        """The fact as of the newest batch: grown with the batches since, as far as the floor bears that out."""
        self._told_later, fact = self._later, self.fact
        if fact.final:
            return fact
        rate, rise = _rate(fact, self._span), self._rise()
        rate = self._rate if rate is None else rate
        # Where no allocator counts, it may have been let go since without anybody having seen it.
        lasts = not _ends(fact) if isinstance(fact, KeptOutputs) else isinstance(fact, KeptOnHost) and not fact.bounded
        later = self._later if rise is not None or lasts else 0
        if not (later or self._lag) or rate is None:
            return fact
        more, share = rate * later, 1.0
        if rise is not None and not isinstance(fact, KeptOnHost):
            if more > 0 and rise < EXPLAINED * more and not self._is_over:
                return fact
            share = min(max(rise, 0) / more, 1.0) if more > 0 else 1.0
        had, late = fact.kept_bytes, rate * self._lag
        # Where each holds less than it seemed, others hold the rest too; what comes now and then was counted.
        if later >= self._span and not isinstance(fact, NOW_AND_THEN):
            more = share * (had + late + more) - had
        else:
            more = late + share * more
        grown = _grown(fact, (later + self._lag) / self._span, round(more), self._batch)
        return replace(grown, estimated=isinstance(grown, NOW_AND_THEN) or getattr(grown, "weights", False))

    def _rise(self) -> int | None:
        if self._at_end is None or self._end is None:
            return None
        ends = self._is_over or _ends(self.fact)
        return ((self._highest or self._end) if ends else self._end) - self._at_end


@final
class GrowthAttribution:
    """All facts of memory that grows, each the newest of its kind and place."""

    def __init__(self) -> None:
        self._batches = Batches()
        self._floors: dict[Stage, StageFloor] = {}
        self._ends: dict[Stage, int | None] = {}
        self._followed: dict[tuple[object, ...], AttributedGrowth] = {}
        self._fell: set[tuple[object, ...]] = set()
        """Facts of what comes now and then that were once told of less than before: it goes, too."""

    def observe(self, series: Iterable[Series]) -> None:
        """More records, those that are alike together."""
        for records in series:
            first = records[0]
            self._batches.observe(first.stage, first.batch, len(records))
            self._ends[first.stage] = first.allocated_end_bytes
            if first.allocated_end_bytes is not None:
                self._floors.setdefault(first.stage, StageFloor()).observe(records[-1].batch, first.allocated_end_bytes)
            for followed in self._followed.values():
                followed.observe(records)

    def learn(self, fact: Fact) -> Fact | None:
        """Follows a fact from now on; returns it with its count made whole: probes follow some batches of many.

        None of a growth that the floor does not bear out.
        """
        if not isinstance(fact, KINDS):
            return fact
        is_seen = isinstance(fact, KeptOutputs) and not fact.measured and fact.stage.evaluates
        floor = self._floors.get(fact.stage) if is_seen else None
        if floor is not None and not floor.bears_out(_first_batch(fact), fact.kept_bytes):
            return None
        if isinstance(fact, KeptOutputs):
            fact = _of_so_many(fact)
        key = (type(fact), fact.stage, fact.place.file, fact.place.line, fact.place.holder)
        before = self._followed.get(key)
        if isinstance(fact, RetainedGraphs):
            fact = self._whole(fact, None if before is None else before.fact)
        last = fact.last_batch if isinstance(fact, RetainedGraphs) else fact.batch
        span = self._batches.between(fact.stage, _first_batch(fact), last)
        lag = self._batches.between(fact.stage, last + 1, fact.batch)
        rate = None if before is None else _rate_since(before.fact, fact, self._batches)
        if before is not None and isinstance(fact, NOW_AND_THEN) and fact.kept_bytes < before.fact.kept_bytes:
            self._fell.add(key)
        if key in self._fell:
            rate = None
        self._followed[key] = AttributedGrowth(fact, self._ends.get(fact.stage), span, lag if lag <= span else 0, rate)
        return fact

    def doubled(self) -> Iterator[Fact]:
        """Facts that have become another matter since they were told, as of now."""
        for followed in self._followed.values():
            if followed.has_doubled and (newest := followed.newest()) is not followed.fact:
                yield newest

    def newest(self) -> list[Fact]:
        """All facts as of the newest batch."""
        return [followed.newest() for followed in self._followed.values()]

    def _whole(self, fact: RetainedGraphs, before: Fact | None) -> RetainedGraphs:
        """The graphs of all batches in its range, where those that were followed are known to be a part of them.

        What was measured is of all batches, and goes on as it grew until then.
        """
        if fact.deepened:
            return fact
        known = before if isinstance(before, RetainedGraphs) and before.measured and not fact.measured else None
        measured = fact.measured or known is not None
        span = self._batches.between(fact.stage, fact.first_batch, fact.last_batch)
        last = fact.batch if measured else fact.last_batch
        whole = self._batches.between(fact.stage, fact.first_batch, last)
        times = max(span / fact.followed if fact.followed else 1.0, 1.0) * whole / max(span, 1)
        graphs, nbytes = max(round(times * fact.graphs), fact.graphs), fact.bytes
        if known is not None:
            since = self._batches.between(known.stage, known.first_batch, known.batch)
            longer = self._batches.between(known.stage, known.first_batch, max(last, known.batch)) / max(since, 1)
            graphs, nbytes = round(longer * known.graphs), round(longer * (known.bytes or 0))
            fact = replace(fact, counted=known.counted)
        elif nbytes is not None and not measured:
            nbytes = max(round(times * nbytes), nbytes)
        steps = fact.optimizer_steps if last == fact.last_batch else 0
        return replace(
            fact, graphs=graphs, bytes=nbytes, last_batch=last, optimizer_steps=steps, followed=0, measured=measured
        )


def _of_so_many(fact: KeptOutputs) -> KeptOutputs:
    """Of no more batches than there were: one may bring more than those before."""
    most = max(fact.batch - fact.first_batch + 1, 1)
    return replace(fact, tensors=most) if fact.what == OF_BATCHES and fact.tensors > most else fact


def _first_batch(fact: Fact) -> int:
    if isinstance(fact, (RetainedGraphs, KeptOutputs)):
        return fact.first_batch
    if isinstance(fact, ViewsPinStorage):
        return max(fact.since, fact.batch - fact.views + 1, 0)
    if isinstance(fact, FreedByCollector):
        return fact.since
    if isinstance(fact, KeptOnHost) and fact.bytes_per_batch:
        return max(fact.batch - round(fact.bytes / fact.bytes_per_batch) + 1, 0)
    return fact.batch


def _ends(fact: Fact) -> bool:
    """Whether what it tells of is let go with the pass, as far as the source shows."""
    return isinstance(fact, KeptOutputs) and fact.bounded and not fact.outlasts


def _piles_up(fact: Fact) -> bool:
    """Whether it is garbage that nothing collects."""
    return isinstance(fact, FreedByCollector) and not fact.is_collected and fact.circles + fact.outputs > 0


def _rate(fact: Fact, span: int) -> float | None:
    """Bytes that come with each batch of the stage; None for what does not grow with each."""
    if isinstance(fact, (KeptOutputs, KeptOnHost)):
        return fact.bytes_per_batch
    if isinstance(fact, ViewsPinStorage):
        return fact.pinned_bytes / span if fact.grows or fact.stage.evaluates else None  # to the end of a pass at least
    if (isinstance(fact, RetainedGraphs) and not fact.deepened) or _piles_up(fact):
        return fact.kept_bytes / span
    return None


def _rate_since(before: Fact, fact: Fact, batches: Batches) -> float | None:
    """Bytes that came with each batch between two facts, of what comes now and then; None where that is not known."""
    passed = batches.between(fact.stage, before.batch + 1, fact.batch)
    more = fact.kept_bytes - before.kept_bytes
    return more / passed if isinstance(fact, NOW_AND_THEN) and passed and more > 0 else None


def _grown(fact: Fact, times: float, nbytes: int, batch: int) -> Fact:
    """A fact after more batches.

    Args:
        fact: As it was measured.
        times: How much more of it came, as a multiple of what there was.
        nbytes: Bytes that came.
        batch: The newest of its stage.
    """
    if isinstance(fact, KeptOutputs):
        tensors = fact.tensors + round((nbytes / fact.bytes if fact.bytes else times) * fact.tensors)
        if fact.capacity is not None and tensors > max(fact.capacity, fact.tensors):
            each, tensors = fact.bytes / max(fact.tensors, 1), max(fact.capacity, fact.tensors)
            nbytes = round(each * tensors) - fact.bytes
        left = None if fact.batches_left is None else max(fact.batches_left - (batch - fact.batch), 0)
        return _of_so_many(replace(fact, batch=batch, tensors=tensors, bytes=fact.bytes + nbytes, batches_left=left))
    field = "pinned_bytes" if isinstance(fact, ViewsPinStorage) else "bytes"
    changes: dict[str, Any] = {"batch": batch, field: fact.kept_bytes + nbytes}
    if isinstance(fact, RetainedGraphs):
        changes |= {
            "last_batch": batch,
            "optimizer_steps": 0,
            "bytes": None if fact.bytes is None else changes["bytes"],
        }
    elif isinstance(fact, (*NOW_AND_THEN, FreedByCollector)):
        times = nbytes / max(fact.kept_bytes, 1)
    for name in COUNTED[type(fact)]:
        changes[name] = getattr(fact, name) + round(times * getattr(fact, name))
    return replace(fact, **changes)
