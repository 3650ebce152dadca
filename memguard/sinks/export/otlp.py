"""OTLP: metrics and events to a collector, through OpenTelemetry's own exporters.

Endpoint, headers, protocol, compression, certificates and timeout come from OpenTelemetry's environment variables. One
request a try: a collector that does not answer is asked again later, by the caller.
"""

from __future__ import annotations

import importlib
import logging
import os
import random
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any, final

from memguard.sinks.export.events import Event
from memguard.sinks.export.metrics import Metric

TIMEOUT_SECONDS = 3
"""How long one request may take where OTEL_EXPORTER_OTLP_TIMEOUT does not say."""
_HTTP, _GRPC = "opentelemetry.exporter.otlp.proto.http", "opentelemetry.exporter.otlp.proto.grpc"
_ASKED_LATER = (408, 429, 500, 502, 503, 504)
"""Statuses after which OpenTelemetry's exporter would wait and try again."""


@final
class OtlpExporter:
    """Sends metrics and events; made in the thread that uses it, for the SDK takes a third of a second to load."""

    def __init__(self, version: str) -> None:
        from memguard.sinks.export import otel_data

        self._data, self._version = otel_data, version
        self._metrics, self._logs = _exporters()
        _use_private_random()
        self._quiet = _Quiet()
        self._resources: dict[tuple[tuple[str, str | int], ...], Any] = {}

    def metrics(self, resource: Mapping[str, str | int], metrics: Sequence[Metric], start: int, end: int) -> bool:
        """Sends metrics; whether the collector has them."""
        data = self._data.metrics_data([(self._resource(resource), metrics)], self._version, start, end)
        with self._quiet:
            return bool(self._metrics.export(data).name == "SUCCESS")

    def events(self, resource: Mapping[str, str | int], events: Sequence[Event]) -> bool:
        """Sends events; whether the collector has them."""
        records = self._data.log_records(events, self._resource(resource), self._version)
        with self._quiet:
            return bool(self._logs.export(records).name == "SUCCESS")

    def close(self) -> None:
        """Lets the connections go."""
        self._metrics.shutdown()
        self._logs.shutdown()
        self._quiet.remove()

    def _resource(self, attributes: Mapping[str, str | int]) -> Any:
        key = tuple(attributes.items())
        if key not in self._resources:
            self._resources = {key: self._data.resource_of(attributes)}
        return self._resources[key]


def _exporters() -> tuple[Any, Any]:
    """OpenTelemetry's exporters of metrics and of logs, over the protocol that the environment names."""
    settings: dict[str, Any] = {}
    if not any(name.startswith("OTEL_EXPORTER_OTLP") and name.endswith("TIMEOUT") for name in os.environ):
        settings["timeout"] = TIMEOUT_SECONDS
    made = []
    for signal, module, name in (
        ("METRICS", "metric_exporter", "OTLPMetricExporter"),
        ("LOGS", "_log_exporter", "OTLPLogExporter"),
    ):
        general = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http/protobuf"
        protocol = os.environ.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL") or general
        if protocol == "grpc":
            made.append(getattr(importlib.import_module(f"{_GRPC}.{module}"), name)(**settings))
        else:
            session = _one_try()
            made.append(getattr(importlib.import_module(f"{_HTTP}.{module}"), name)(session=session, **settings))
    return made[0], made[1]


def _one_try() -> Any:
    """A session whose failures are final: the exporter would wait in this thread and try again, for ten seconds."""
    import requests

    class OneTry(requests.Session):
        """Raises what the exporter does not take for a passing fault.

        All requests of an exporter differ in their body alone. So URL, headers, proxies, certificates and credentials
        are prepared for the first one: that takes as long as sending one.
        """

        merged: Any = None
        prepared: tuple[Any, Any] | None = None

        def merge_environment_settings(self, *args: Any) -> Any:
            """Proxies and certificates, from the environment."""
            self.merged = self.merged or super().merge_environment_settings(*args)
            return self.merged

        def prepare_request(self, request: Any) -> Any:
            """The first request with another body."""
            like = (request.method, request.url, dict(request.headers))
            if self.prepared is None or self.prepared[0] != like or not isinstance(request.data, bytes):
                self.prepared = like, super().prepare_request(request)
            made = self.prepared[1]
            made.body, made.headers["Content-Length"] = request.data, str(len(request.data))
            return made

        def request(self, method: Any, url: Any, *args: Any, **kwargs: Any) -> Any:
            """Sends one request."""
            try:
                answer = super().request(method, url, *args, **kwargs)
            except requests.RequestException as error:
                raise ConnectionError(type(error).__name__) from None
            if answer.status_code in _ASKED_LATER:
                raise ConnectionError(f"status {answer.status_code}")
            return answer

    return OneTry()


def _use_private_random() -> None:
    """OpenTelemetry's exporters draw their pauses from Python's global generator, even where they need none.

    A training that uses ``random`` would see other numbers for that: they get a generator of their own.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("opentelemetry.exporter.") and getattr(module, "random", None) is random:
            module.random = random.Random()  # type: ignore[attr-defined]


@final
class _Quiet(logging.Filter):
    """Keeps what the exporters log of memguard's own requests from the training's log.

    They log a line for each try; memguard says once that the collector does not answer.
    """

    def __init__(self) -> None:
        super().__init__()
        self._thread: int | None = None
        self._loggers = [
            logging.getLogger(name)
            for name in list(sys.modules)
            if name.startswith("opentelemetry.exporter.otlp") and name in logging.Logger.manager.loggerDict
        ]
        for each in self._loggers:
            each.addFilter(self)

    def __enter__(self) -> None:
        self._thread = threading.get_ident()

    def __exit__(self, *_: object) -> None:
        self._thread = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is of another's export."""
        return record.thread != self._thread

    def remove(self) -> None:
        """Takes the filter away."""
        for each in self._loggers:
            each.removeFilter(self)
