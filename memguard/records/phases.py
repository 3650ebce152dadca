"""Phases of a run: the peak of each, whatever batches end within it. No torch.

A phase begins with a boundary of the device's peak counters (`memguard.backends.interface.Backend.cut`). Batches and
other phases set boundaries too, so each open phase takes the highest of what is read at all of them until its end; and
the batch in which a phase begins takes what was read there.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final, final

from memguard.clocks import now
from memguard.forks import process
from memguard.phases import Path, current_path
from memguard.records.stats import MemoryStats

WRITTEN, EVERY_SECONDS = 64, 1.0
"""The first phases of a name that are written down, each of them; later ones at most so often, and each new peak."""
MOST_RANGES = 64
"""Ranges of batches in a line; of more the last ones are drawn as one."""
MOST_NAMES = 256
"""Rows of a run; further names are left out: they are made of numbers."""
INSIDE: Final = " > "
"""Between the name of a phase and that of one inside it."""
MOST_LABELS = 8192
"""Changes of the phase from batch to batch that are remembered."""
_COUNTS: Final = ("times", "failed", "first_batch", "last_batch")
_SIZES: Final = ("allocated_peak_bytes", "reserved_peak_bytes", "floor_bytes", "host_rss_peak_bytes")


@dataclass(slots=True, kw_only=True)
class PhaseTotals:
    """What all phases of one name come to."""

    name: str
    """With the phases around it: ``"update > log-probs"``."""
    times: int = 0
    """How many phases have ended."""
    failed: int = 0
    """Of these, how many ended with an exception."""
    seconds: float = 0.0
    """Their duration, all together."""
    allocated_peak_bytes: int | None = None
    """The highest in tensors on the device during any of them."""
    reserved_peak_bytes: int | None = None
    """The highest that PyTorch's allocator held."""
    floor_bytes: int | None = None
    """The lowest of what was allocated at their ends: what they leave at least."""
    host_rss_peak_bytes: int | None = None
    """The highest RAM of the process at their ends."""
    first_batch: int = 0
    """Number of the record in which the first began."""
    last_batch: int = 0
    """Number of the record in which the last ended."""

    def add(self, other: PhaseTotals) -> None:
        """Takes further phases of the name into account."""
        self.first_batch = min(self.first_batch, other.first_batch) if self.times else other.first_batch
        self.last_batch = max(self.last_batch, other.last_batch)
        self.times += other.times
        self.failed += other.failed
        self.seconds += other.seconds
        self.allocated_peak_bytes = _highest(self.allocated_peak_bytes, other.allocated_peak_bytes)
        self.reserved_peak_bytes = _highest(self.reserved_peak_bytes, other.reserved_peak_bytes)
        self.host_rss_peak_bytes = _highest(self.host_rss_peak_bytes, other.host_rss_peak_bytes)
        ends = [each for each in (self.floor_bytes, other.floor_bytes) if each is not None]
        self.floor_bytes = min(ends, default=None)

    def to_json(self) -> dict[str, Any]:
        """The row under the keys of the report and the recording."""
        figures = {key: getattr(self, key) for key in (*_COUNTS, *_SIZES)}
        return {"name": self.name, "seconds": round(self.seconds, 4), **figures}

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> PhaseTotals | None:
        """What `to_json` wrote; None if it is damaged."""
        name, seconds = line.get("name"), line.get("seconds")
        counts, sizes = {key: line.get(key) for key in _COUNTS}, {key: line.get(key) for key in _SIZES}
        if not isinstance(name, str) or not isinstance(seconds, (int, float)):
            return None
        if not all(type(each) is int for each in counts.values()):
            return None
        if not all(each is None or type(each) is int for each in sizes.values()):
            return None
        return cls(name=name, seconds=float(seconds), **counts, **sizes)  # type: ignore[arg-type]  # checked above


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPhase:
    """A phase that is under way, for those who ask in it."""

    name: str
    batch: int
    """Number of the record in which it began."""
    seconds: float
    times: int
    """Which time of its name it is, from 1."""
    allocated_start_bytes: int | None
    allocated_peak_bytes: int | None

    def in_words(self) -> str:
        """Like ``"in phase `rollout` since batch 12 (its 3rd time, 1.3 s)"``."""
        time = "" if self.times == 1 else f"time {self.times}, "
        return f"in phase `{self.name}` since batch {self.batch} ({time}{self.seconds:.1f} s)"


@final
class _Phase:
    """One that is under way."""

    __slots__ = ("batch", "name", "path", "peak", "reserved_peak", "start", "thread", "time")

    def __init__(self, path: Path, batch: int, time: float, start: int | None) -> None:
        self.path, self.name, self.batch, self.time, self.start = path, name_of(path), batch, time, start
        self.thread = threading.get_ident()
        self.peak: int | None = None
        self.reserved_peak: int | None = None

    def raise_to(self, look: MemoryStats) -> None:
        self.peak = _highest(self.peak, look.allocated_peak_bytes)
        self.reserved_peak = _highest(self.reserved_peak, look.reserved_peak_bytes)


@dataclass(slots=True)
class _Unwritten:
    """What came of a name since its last line."""

    written: float = 0.0
    """When that was."""
    peak: int | None = None
    """The highest peak since."""
    ranges: list[list[int]] = field(default_factory=list)
    """First and last batches of phases since, those in a row as one."""

    def add(self, phase: PhaseTotals) -> None:
        """One more phase."""
        self.peak = _highest(self.peak, phase.allocated_peak_bytes)
        first, last, ranges = phase.first_batch, phase.last_batch, self.ranges
        if ranges and (first <= ranges[-1][1] + 1 or len(ranges) >= MOST_RANGES):
            ranges[-1][1] = max(last, ranges[-1][1])
        else:
            ranges.append([first, last])

    def to_json(self) -> dict[str, Any]:
        """What is added to the totals in a line."""
        return {"peak_bytes": self.peak, "ranges": self.ranges}


def name_of(path: Path) -> str:
    """How a phase is told: ``"update > log-probs"``."""
    return INSIDE.join(path)


@final
class PhaseLedger:
    """Records the phases of one guard.

    Args:
        cut: A boundary of the device's peaks that ends no batch.
        read: A look at the device, with the peaks since the last boundary.
        batch: Tells the number of the open or next record.
        is_open: Tells whether a batch is open.
        rss: The process's resident memory in bytes.
        write: Takes a line of the recording.
        failed: Told an exception of ours; must not keep it. The ledger is then off.

    Attributes:
        used: Whether there was a phase yet: else no batch need be told.
        busy: Whether the next mark of a batch is to be told.
        totals: What the phases of each name come to.
    """

    def __init__(
        self,
        *,
        cut: Callable[[], MemoryStats],
        read: Callable[[], MemoryStats],
        batch: Callable[[], int],
        is_open: Callable[[], bool],
        rss: Callable[[], int | None],
        write: Callable[[dict[str, Any]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._cut, self._read, self._batch, self._is_open, self._rss = cut, read, batch, is_open, rss
        self._write, self._failed = write, failed
        self._lock = threading.RLock()
        self._open: list[_Phase] = []
        self._carried: MemoryStats | None = None
        """Peaks of the open batch that were read at boundaries of phases."""
        self._off, self._pid = False, process.pid
        self.used = self.busy = False
        self.totals: dict[str, PhaseTotals] = {}
        self._unwritten: dict[str, _Unwritten] = {}
        self._label: str | None = None
        """The phase in which the open batch began."""
        self._labels: list[tuple[int, str | None]] = []
        """First records of stretches whose batches began in one phase."""

    # Told by `memguard.phase`, on any thread

    def phase_start(self, path: Path) -> object:
        """A phase begins."""
        if self._off or process.pid != self._pid:
            return None
        try:
            with self._lock:
                self.used = self.busy = True
                look = self._cut()
                self._boundary(look)
                opened = _Phase(path, self._batch(), now(), look.allocated_bytes)
                self._open.append(opened)
                self._label = self._label or opened.name
                return opened
        except Exception as error:
            self._give_up(error)
            return None

    def phase_end(self, started: object, error: str | None) -> None:
        """It ends; in an out-of-memory error's way too."""
        if self._off or process.pid != self._pid or not isinstance(started, _Phase):
            return
        try:
            with self._lock:
                if started in self._open:
                    self._end(started, self._read(), error)
                if self._label == started.name and len(started.path) > 1:
                    self._label = name_of(started.path[:-1])  # what goes on outlasts the part in which it began
        except Exception as problem:
            self._give_up(problem)

    # Told by the recorder

    def batch_started(self) -> None:
        """A batch begins in the thread that trains."""
        self._label = name_of(path) if (path := current_path()) else None
        self.busy = bool(self._open or self._carried or self._label)

    def marked(self, look: MemoryStats, batch: int) -> MemoryStats:
        """A boundary of the recorder's, as the open batch ends: what it read, with the peaks of that whole batch."""
        with self._lock:
            for each in self._open:
                each.raise_to(look)
            carried, self._carried = self._carried, None
            label, self._label = self._label, None
            self._note(batch, label)
            self.busy = bool(self._open)
        return look if carried is None else _with_peaks(look, carried)

    def name_at(self, batch: int) -> str | None:
        """The phase in which a recorded batch began; of the open one, that which is under way."""
        if not self.used:
            return None
        if batch >= self._batch():
            return self._label or (name_of(current_path()) or None)
        at = bisect.bisect_right(self._labels, batch, key=lambda each: each[0]) - 1
        return self._labels[at][1] if at >= 0 else None

    def open_now(self) -> OpenPhase | None:
        """The innermost phase of this thread that is under way; else the newest of any thread."""
        with self._lock:
            own = [each for each in self._open if each.thread == threading.get_ident()]
            phase = next(reversed(own or self._open), None)
            if phase is None or self._off:
                return None
            look = self._read()
            known = self.totals.get(phase.name)
            return OpenPhase(
                name=phase.name,
                batch=phase.batch,
                seconds=max(now() - phase.time, 0.0),
                times=(known.times if known is not None else 0) + 1,
                allocated_start_bytes=phase.start,
                allocated_peak_bytes=_highest(phase.peak, look.allocated_peak_bytes),
            )

    def close(self) -> None:
        """The run is over: what is under way ends here, and everything is written down."""
        try:
            with self._lock:
                while self._open:
                    self._end(self._open[-1], self._read(), None)
                for name, rest in list(self._unwritten.items()):
                    if rest.ranges:
                        self._write({**self.totals[name].to_json(), **rest.to_json()})
        except Exception as error:
            self._give_up(error)
        self._off, self.busy = True, False

    def _note(self, batch: int, label: str | None) -> None:
        """The batch that ends began in that phase; the next one in none, as far as is known."""
        labels = self._labels
        if labels and labels[-1] == (batch, None):
            labels.pop()
        if (labels[-1][1] if labels else None) != label:
            labels.append((batch, label))
        if label is not None:
            labels.append((batch + 1, None))
        if len(labels) > MOST_LABELS:
            del labels[: MOST_LABELS // 2]

    def _boundary(self, look: MemoryStats) -> None:
        for each in self._open:
            each.raise_to(look)
        self._carried = look if self._carried is None else _with_peaks(look, self._carried)

    def _end(self, phase: _Phase, look: MemoryStats, error: str | None) -> None:
        self._open.remove(phase)
        phase.raise_to(look)
        time, last = now(), self._batch() - (not self._is_open())
        one = PhaseTotals(
            name=phase.name,
            times=1,
            failed=int(error is not None),
            seconds=max(time - phase.time, 0.0),
            allocated_peak_bytes=phase.peak,
            reserved_peak_bytes=phase.reserved_peak,
            floor_bytes=look.allocated_bytes,
            host_rss_peak_bytes=self._rss(),
            first_batch=phase.batch,
            last_batch=max(last, phase.batch),
        )
        known = self.totals.get(phase.name)
        if known is None:
            if len(self.totals) >= MOST_NAMES:
                return
            known = _inserted(self.totals, PhaseTotals(name=phase.name))
        is_higher = (phase.peak or 0) > (known.allocated_peak_bytes or 0)
        known.add(one)
        rest = self._unwritten.setdefault(phase.name, _Unwritten())
        rest.add(one)
        if known.times <= WRITTEN or is_higher or error is not None or time - rest.written >= EVERY_SECONDS:
            self._unwritten[phase.name] = _Unwritten(time)
            this = {"batch": phase.batch, "began": round(phase.time, 3), "error": error}
            self._write({**known.to_json(), **this, **rest.to_json()})

    def _give_up(self, error: Exception) -> None:
        self._off, self.busy = True, False
        self._open.clear()
        self._failed(error)


def _inserted(totals: dict[str, PhaseTotals], entry: PhaseTotals) -> PhaseTotals:
    """Adds a row for a name, before those of the phases inside it, which ended first."""
    rows = list(totals.items())
    at = next((n for n, (name, _) in enumerate(rows) if name.startswith(f"{entry.name}{INSIDE}")), len(rows))
    totals.clear()
    totals.update([*rows[:at], (entry.name, entry), *rows[at:]])
    return entry


def _highest(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)


def _with_peaks(look: MemoryStats, other: MemoryStats) -> MemoryStats:
    """The same look, its peaks no lower than another one's."""
    return replace(
        look,
        allocated_peak_bytes=_highest(look.allocated_peak_bytes, other.allocated_peak_bytes),
        reserved_peak_bytes=_highest(look.reserved_peak_bytes, other.reserved_peak_bytes),
        active_peak_bytes=_highest(look.active_peak_bytes, other.active_peak_bytes),
    )


def totals_in(lines: list[dict[str, Any]]) -> dict[str, PhaseTotals]:
    """What a recording says of phases: the newest line of each name has all of them."""
    totals: dict[str, PhaseTotals] = {}
    for each in filter(None, map(PhaseTotals.from_json, lines)):
        if each.name in totals:
            totals[each.name] = each
        else:
            _inserted(totals, each)
    return totals
