"""What is exported of a run, as plain numbers: gauges, counters and histograms by stage and phase. No SDK, no torch.

The number of series is bounded: a series is a metric, a stage and a phase, of which at most 32 have a name. Numbers
are cumulative since the process began, so an export that is lost is made good by the next one.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, final

from memguard.records.findings import Finding
from memguard.records.stats import BatchRecord, Run, Series
from memguard.records.summary import headroom

Kind = Literal["gauge", "updown", "counter", "histogram"]
MOST_PHASES = 32
"""Names of phases that have series of their own; further ones share ``other``."""
STAGE, PHASE = "memguard.stage", "memguard.phase"
_MIB = 1 << 20
BYTES: tuple[float, ...] = tuple(
    float(size) for power in range(6, 19) for size in (_MIB << power, (_MIB << power) * 3 // 2)
)
"""Edges of the histograms of bytes: 64 MiB, 96 MiB, 128 MiB ... 384 GiB."""
SECONDS: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


@final
@dataclass(frozen=True, slots=True)
class Point:
    """One series' value at this moment."""

    attributes: dict[str, str]
    value: float = 0
    buckets: tuple[int, ...] = ()
    """Of a histogram: how many values lie up to each edge, and in the last one above all."""
    least: float = 0
    most: float = 0


@final
@dataclass(frozen=True, slots=True)
class Metric:
    """A metric and its series. Of a histogram, a point's ``value`` is the sum of what it counts."""

    name: str
    unit: str
    description: str
    kind: Kind
    points: list[Point] = field(default_factory=list)
    edges: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """For a file that another process reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Metric:
        """What `to_json` wrote."""
        points = [Point(**{**each, "buckets": tuple(each["buckets"])}) for each in data["points"]]
        return cls(**{**data, "points": points, "edges": tuple(data["edges"])})


_Sized = tuple[str, str, str, Kind, str]
# What is exported of a batch's memory: the gauge's name, its description, its kind, and the histogram's name.
_SIZES: dict[str, _Sized] = {
    "allocated": (
        "memguard.memory.allocated",
        "Highest allocated memory of a batch since the last export",
        "memguard.batch.memory.allocated",
        "gauge",
        "Highest allocated memory of each batch",
    ),
    "reserved": (
        "memguard.memory.reserved",
        "Most that PyTorch's allocator reserved since the last export",
        "memguard.batch.memory.reserved",
        "gauge",
        "Most that PyTorch's allocator reserved in each batch",
    ),
    "device_used": (
        "hw.gpu.memory.usage",
        "In use on the device by all processes, as its driver reports it",
        "memguard.batch.memory.device_used",
        "updown",
        "In use on the device by all processes at each batch",
    ),
    "headroom": (
        "memguard.memory.headroom",
        "Least of the device that PyTorch's allocator had not reserved since the last export",
        "memguard.batch.memory.headroom",
        "gauge",
        "What of the device PyTorch's allocator had not reserved in each batch",
    ),
    "host_rss": (
        "process.memory.usage",
        "Resident memory of this process",
        "memguard.batch.memory.host_rss",
        "updown",
        "Resident memory of this process at each batch",
    ),
}


@final
class _Counts:
    """A histogram; sizes repeat from batch to batch, so values are sorted into it when it is asked for."""

    __slots__ = ("buckets", "edges", "fresh", "least", "most", "total")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges, self.buckets = edges, [0] * (len(edges) + 1)
        self.total, self.least, self.most = 0.0, float("inf"), float("-inf")
        self.fresh: dict[float, int] = {}
        """How often each value came since it was asked for."""

    def point(self, attributes: dict[str, str]) -> Point:
        for value, times in self.fresh.items():
            self.buckets[bisect.bisect_left(self.edges, value)] += times
            self.total += value * times
        if self.fresh:
            self.least, self.most = min(self.least, *self.fresh), max(self.most, *self.fresh)
            self.fresh.clear()
        return Point(attributes, self.total, tuple(self.buckets), self.least, self.most)


@final
class _Cell:
    """One stage and phase."""

    __slots__ = ("batches", "gauges", "histograms", "ooms", "retries", "seconds", "window")

    def __init__(self) -> None:
        self.batches = self.retries = self.ooms = 0
        self.gauges: dict[str, int] = {}
        """Of each size the extreme since the last export; where no batch came since, the one before."""
        self.window: set[str] = set()
        """Sizes that batches had since the last export."""
        self.histograms = {name: _Counts(BYTES) for name in _SIZES}
        self.seconds = _Counts(SECONDS)

    def take(self, records: Series, total_bytes: int | None) -> None:
        times = len(records)
        self.batches += times
        seconds = self.seconds.fresh
        for each in records:
            seconds[each.seconds] = seconds.get(each.seconds, 0) + 1
            self.retries += each.num_alloc_retries or 0
            self.ooms += each.num_ooms or 0
        gauges, window = self.gauges, self.window
        for name, value in _sizes_of(records[0], total_bytes):
            if value is None:
                continue
            fresh = self.histograms[name].fresh
            fresh[value] = fresh.get(value, 0) + times
            if name not in window:
                window.add(name)
                gauges[name] = value
            elif value < gauges[name] if name == "headroom" else value > gauges[name]:
                gauges[name] = value


def _sizes_of(record: BatchRecord, total_bytes: int | None) -> Iterable[tuple[str, int | None]]:
    """The sizes of a record; None is unknown."""
    reserved = record.reserved_peak_bytes if record.reserved_peak_bytes is not None else record.reserved_bytes
    allocated = record.allocated_peak_bytes
    return (
        ("allocated", allocated if allocated is not None else record.allocated_end_bytes),
        ("reserved", reserved),
        ("device_used", record.device_used_bytes),
        ("headroom", headroom(total_bytes, reserved, ran_out=bool(record.num_ooms))),
        ("host_rss", record.host_rss_bytes),
    )


@final
class RunMetrics:
    """The metrics of one process's run. Used by one thread at a time."""

    def __init__(self) -> None:
        self._cells: dict[tuple[str, str], _Cell] = {}
        self._phases: set[str] = set()
        self._findings: dict[tuple[str, str], set[object]] = {}
        self._phase_peaks: dict[str, int] = {}
        self._run: Run | None = None

    def take(self, records: Series, run: Run | None, phase: str | None) -> None:
        """Takes some more batches that are alike, which began in a phase."""
        self._run = run
        key = (records[0].stage.value, self._name(phase))
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = _Cell()
        cell.take(records, run.device_total_bytes if run is not None else None)

    def finding(self, finding: Finding) -> None:
        """Counts a finding's cause once."""
        for (code, _), causes in self._findings.items():
            if code == finding.code:
                causes.discard(finding.cause)  # it may have become worse
        self._findings.setdefault((finding.code, finding.severity.value), set()).add(finding.cause)

    def phase(self, name: str, allocated_peak_bytes: int) -> None:
        """The newest peak of a phase."""
        self._phase_peaks[self._name(name)] = allocated_peak_bytes

    def _name(self, phase: str | None) -> str:
        if not phase:
            return ""
        if phase not in self._phases and len(self._phases) >= MOST_PHASES:
            return "other"
        self._phases.add(phase)
        return phase

    def snapshot(self, device: dict[str, str], *, ends_window: bool = True) -> list[Metric]:
        """All metrics as they are now.

        Args:
            device: Attributes of the device, for the metrics that semantic conventions give them to.
            ends_window: Whether gauges begin anew after this; not where somebody only looks.
        """
        metrics = [
            Metric("memguard.batches", "{batch}", "Batches so far", "counter"),
            Metric("memguard.allocator.retries", "{retry}", "Times that the allocator flushed its cache", "counter"),
            Metric("memguard.allocator.ooms", "{error}", "Out-of-memory errors of the allocator", "counter"),
            Metric("memguard.batch.duration", "s", "Duration of each batch", "histogram", edges=SECONDS),
        ]
        sized = {}
        for name, (newest, text, counted, kind, each) in _SIZES.items():
            sized[name] = Metric(newest, "By", text, kind), Metric(counted, "By", each, "histogram", edges=BYTES)
        for (stage, phase), cell in self._cells.items():
            labels = {STAGE: stage, PHASE: phase}
            for metric, value in zip(metrics, (cell.batches, cell.retries, cell.ooms), strict=False):
                metric.points.append(Point(labels, value))
            metrics[3].points.append(cell.seconds.point(labels))
            for name, value in cell.gauges.items():
                gauge, histogram = sized[name]
                gauge.points.append(Point({**labels, **device} if gauge.name.startswith("hw.") else labels, value))
                histogram.points.append(cell.histograms[name].point(labels))
            if ends_window:
                cell.window.clear()
        for pair in sized.values():
            metrics += pair
        metrics += self._others(device)
        return [metric for metric in metrics if metric.points]

    def _others(self, device: dict[str, str]) -> Iterator[Metric]:
        total = self._run.device_total_bytes if self._run is not None else None
        limit = Metric("hw.gpu.memory.limit", "By", "Capacity of the device", "updown")
        if total is not None:
            limit.points.append(Point(dict(device), total))
        yield limit
        peaks = Metric("memguard.phase.memory.allocated", "By", "Newest peak of each phase", "gauge")
        peaks.points.extend(Point({PHASE: name}, peak) for name, peak in self._phase_peaks.items())
        yield peaks
        found = Metric("memguard.findings", "{finding}", "Findings so far, by rule and severity", "updown")
        found.points.extend(
            Point({"memguard.finding.code": code, "memguard.finding.severity": severity}, len(causes))
            for (code, severity), causes in self._findings.items()
        )
        yield found
