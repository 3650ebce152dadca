"""Metrics and events as OpenTelemetry's SDK has them, ready for its exporters. Loads the SDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as SdkMetric
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from memguard.sinks.export.events import Event
from memguard.sinks.export.metrics import Metric, Point

_LEVELS = {
    "info": SeverityNumber.INFO,
    "warning": SeverityNumber.WARN,
    "critical": SeverityNumber.ERROR,
    "fatal": SeverityNumber.FATAL,
}


def resource_of(attributes: Mapping[str, str | int]) -> Resource:
    """The resource, with what OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME add; those name the service."""
    made = Resource.create(dict(attributes))
    if str(made.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        made = made.merge(Resource({SERVICE_NAME: "memguard"}))
    return made


def metrics_data(told: Sequence[tuple[Resource, Sequence[Metric]]], version: str, start: int, end: int) -> MetricsData:
    """What exporters take.

    Args:
        told: Each process's resource and metrics.
        version: memguard's, for the scope.
        start: When counting began, in nanoseconds since 1970.
        end: Now, in the same unit.
    """
    scope = InstrumentationScope("memguard", version)
    return MetricsData(
        [
            ResourceMetrics(
                resource, [ScopeMetrics(scope, [_metric(each, start, end) for each in metrics], schema_url="")], ""
            )
            for resource, metrics in told
        ]
    )


def _metric(metric: Metric, start: int, end: int) -> SdkMetric:
    data: Any
    if metric.kind == "histogram":
        points = [_histogram_point(metric, point, start, end) for point in metric.points]
        data = Histogram(points, AggregationTemporality.CUMULATIVE)
    else:
        numbers = [NumberDataPoint(each.attributes, start, end, each.value) for each in metric.points]
        if metric.kind == "gauge":
            data = Gauge(numbers)
        else:
            data = Sum(numbers, AggregationTemporality.CUMULATIVE, is_monotonic=metric.kind == "counter")
    return SdkMetric(metric.name, metric.description, metric.unit, data)


def _histogram_point(metric: Metric, point: Point, start: int, end: int) -> HistogramDataPoint:
    return HistogramDataPoint(
        point.attributes,
        start,
        end,
        sum(point.buckets),
        point.value,
        point.buckets,
        metric.edges,
        point.least,
        point.most,
    )


def log_records(events: Sequence[Event], resource: Resource, version: str) -> list[ReadableLogRecord]:
    """Findings and out-of-memory reports as log records."""
    scope = InstrumentationScope("memguard", version)
    return [
        ReadableLogRecord(
            LogRecord(
                timestamp=event.time_ns,
                observed_timestamp=event.time_ns,
                severity_text=event.severity,
                severity_number=_LEVELS[event.severity],
                body=event.body,
                attributes=event.attributes,
                event_name=event.name,
            ),
            resource,
            scope,
        )
        for event in events
    ]
