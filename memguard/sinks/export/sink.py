"""The sink that exports: the loop's thread hands over what happened, the slow lane's thread counts and sends it."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, final

from memguard.clocks import monotonic, time_ns
from memguard.records.findings import Finding
from memguard.records.stats import Run, Series
from memguard.sinks.export.events import Event, of_finding, of_out_of_memory
from memguard.sinks.export.metrics import Metric, RunMetrics
from memguard.sinks.export.place import Exporting
from memguard.sinks.interface import Sink

logger = logging.getLogger("memguard")

EVERY_SECONDS = 60.0
"""Between two exports of metrics, where OTEL_METRIC_EXPORT_INTERVAL does not say: OpenTelemetry's own default."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 3.0, 60.0
"""After an export that failed, and after many: each pause is twice the one before."""
MOST_WAITING, MOST_EVENTS = 16_384, 1024
"""Batches (those that are alike count once) and events that are kept for a thread that is late, or for a collector that
is away; the oldest go first."""
_CLOSING_SECONDS = 2.0
_EVENTS_AT_ONCE = 256


class Exporter(Protocol):
    """Where metrics go."""

    def metrics(self, resource: dict[str, str | int], metrics: Sequence[Metric], start: int, end: int) -> bool:
        """Hands metrics over; whether they arrived."""

    def close(self) -> None:
        """Lets everything go."""


class EventExporter(Exporter, Protocol):
    """One that takes events too."""

    def events(self, resource: dict[str, str | int], events: Sequence[Event]) -> bool:
        """Hands events over; whether they arrived."""


def _no_phase(batch: int) -> str | None:
    return None


@final
class ExportSink(Sink):
    """Metrics, findings and out-of-memory reports for OpenTelemetry or Prometheus.

    The loop's thread appends to a queue and no more. `deliver`, called in the slow lane's thread, counts and sends. A
    collector that is away costs one request now and then, ever more seldom; numbers are cumulative and events wait, so
    one that comes back misses nothing but events above a thousand.

    Args:
        exporting: Who this is.
        make: Makes the exporter; called in the slow lane's thread, for it may take long to load.
        every: Seconds between two exports.
        clock: Seconds that only grow; tests bring their own.
    """

    def __init__(
        self,
        exporting: Exporting,
        make: Callable[[], Exporter | EventExporter],
        *,
        every: float = EVERY_SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.exporting, self._make, self._every, self._clock = exporting, make, every, clock
        self.phase_at: Callable[[int], str | None] = _no_phase
        """Tells the phase in which a batch began, where the program names phases."""
        self._waiting: deque[Series] = deque(maxlen=MOST_WAITING)
        self._phases: deque[tuple[str, int]] = deque(maxlen=MOST_WAITING)
        self._found: deque[Finding] = deque(maxlen=MOST_EVENTS)
        self._events: deque[Event] = deque(maxlen=MOST_EVENTS)
        self._told: dict[object, str] = {}
        self._metrics = RunMetrics()
        self._start = time_ns()
        self._next = 0.0
        self._pause = FIRST_PAUSE_SECONDS
        self._exporter: Exporter | EventExporter | None = None
        self._run: Run | None = None
        self._one = threading.Lock()
        self._closed = False
        self.failures = 0
        """Exports in a row that did not arrive."""

    # In the loop's thread

    def records(self, records: Series, run: Run) -> None:
        """Hands some more batches over."""
        self._run = run
        self._waiting.append(records)

    def finding(self, finding: Finding) -> None:
        """Hands a finding over."""
        self._found.append(finding)

    def phase(self, name: str, allocated_peak_bytes: int, batch: int) -> None:
        """Hands a phase's peak over."""
        self._phases.append((name, allocated_peak_bytes))

    def conclude(self, findings: Sequence[Finding]) -> None:
        """Hands over what became of the findings."""
        self._found.extend(findings)

    def out_of_memory(self, report: str, batch: int) -> None:
        """Hands the report over."""
        self._events.append(of_out_of_memory(report, batch))

    def close(self) -> None:
        """Sends what is left, in one try of a few seconds at most."""
        if self._closed or not self._one.acquire(timeout=_CLOSING_SECONDS):
            return
        self._closed = True
        try:
            self._next = 0.0
            self._send()
        finally:
            if self._exporter is not None:
                self._exporter.close()
            self._one.release()

    # In the slow lane's thread

    def deliver(self) -> None:
        """Counts what waits, and sends when it is time."""
        if self._closed or not self._one.acquire(blocking=False):
            return
        try:
            if not self._closed:
                self._send()
        except BaseException:
            self._closed = True  # whoever called says why
            raise
        finally:
            self._one.release()

    def _send(self) -> None:
        self._count()
        now = self._clock()
        urgent = bool(self._events) and not self.failures
        if (now < self._next and not urgent) or (self._run is None and not self._events):
            return
        if self._exporter is None:
            self._exporter = self._make()
        if self._arrived(self._exporter, whole=now >= self._next):
            if self.failures and not self.exporting.rank:
                logger.info("memguard: the collector answers again")
            self.failures, self._pause = 0, FIRST_PAUSE_SECONDS
            if now >= self._next:
                self._next = now + self._every
            return
        self.failures += 1
        if self.failures == 2 and not self.exporting.rank:  # one may be a restart; a rank speaks for all
            logger.warning("memguard: the collector does not answer; the recording on disk has everything")
        self._next = self._clock() + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)

    def _arrived(self, exporter: Exporter | EventExporter, *, whole: bool) -> bool:
        resource = self.exporting.resource()
        if whole:
            run = self._run
            device = {"hw.id": run.device, "hw.name": run.device_name or ""} if run is not None else {}
            metrics = self._metrics.snapshot(device)
            if metrics and not exporter.metrics(resource, metrics, self._start, time_ns()):
                return False
        send: Callable[..., bool] | None = getattr(exporter, "events", None)
        if send is None:  # Prometheus has metrics alone
            self._events.clear()
            return True
        while self._events:
            some = [self._events[at] for at in range(min(len(self._events), _EVENTS_AT_ONCE))]
            if not send(resource, some):
                return False
            for _ in some:
                self._events.popleft()
        return True

    def _count(self) -> None:
        while self._waiting:
            records = self._waiting.popleft()
            self._metrics.take(records, self._run, self.phase_at(records[0].batch))
        while self._phases:
            self._metrics.phase(*self._phases.popleft())
        while self._found:
            finding = self._found.popleft()
            self._metrics.finding(finding)
            if self._told.get(finding.cause) != finding.message:
                self._told[finding.cause] = finding.message
                self._events.append(of_finding(finding))


# Which exporter an option means, and whether its packages are here.

_PULLED_SECONDS = 5.0
"""Between two files for the node's server, which Prometheus asks when it likes."""


def make_export_sink(kind: str, exporting: Exporting, *, clock: Callable[[], float] = monotonic) -> ExportSink | None:
    """The sink for ``export="otlp"`` or ``"prometheus"``; None where OTEL_SDK_DISABLED says so.

    Args:
        kind: The option.
        exporting: Who this process is.
        clock: Seconds that only grow, by which exports are paced; tests bring their own.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    if kind == "prometheus":
        return ExportSink(exporting, functools.partial(_prometheus, exporting), every=_PULLED_SECONDS, clock=clock)
    return ExportSink(exporting, functools.partial(_otlp, exporting), every=_interval(), clock=clock)


def _otlp(exporting: Exporting) -> EventExporter:
    from memguard.sinks.export.otlp import OtlpExporter

    return OtlpExporter(exporting.version)


def _prometheus(exporting: Exporting) -> Exporter:
    from memguard.sinks.export.prometheus import PrometheusExporter

    return PrometheusExporter(exporting.version, exporting.rank)


def _interval() -> float:
    told = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", "")
    return max(int(told) / 1000, 0.1) if told.isdigit() else EVERY_SECONDS
