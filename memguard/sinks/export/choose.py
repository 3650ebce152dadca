"""Which exporter an option means, and whether its packages are here."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

from memguard.clocks import monotonic
from memguard.sinks.export.place import Exporting
from memguard.sinks.export.sink import EVERY_SECONDS, EventExporter, Exporter, ExportSink

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
