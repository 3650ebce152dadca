"""Prometheus: one port a node, where the metrics of all its ranks are pulled, through OpenTelemetry's own exporter.

Each rank leaves its newest metrics in a file of the node's temporary directory; the rank that has the port serves them
all, and another takes the port over when it is gone. Host and port come from OTEL_EXPORTER_PROMETHEUS_HOST (localhost)
and OTEL_EXPORTER_PROMETHEUS_PORT (9464).
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

from memguard.clocks import time_ns
from memguard.sinks.export.metrics import Metric
from memguard.sinks.export.place import LABELS

STALE_SECONDS = 600
"""A file that no rank has written for so long is left out, and removed."""


def address() -> tuple[str, int]:
    """Host and port, from OpenTelemetry's environment variables."""
    port = os.environ.get("OTEL_EXPORTER_PROMETHEUS_PORT", "")
    return os.environ.get("OTEL_EXPORTER_PROMETHEUS_HOST") or "localhost", int(port) if port.isdigit() else 9464


@final
class PrometheusExporter:
    """Leaves this rank's metrics where the node's server finds them, and serves the node where nobody does.

    Raises:
        OSError: The node's directory cannot be made, or belongs to somebody else.
    """

    def __init__(self, version: str, rank: int) -> None:
        self._host, self._port = address()
        self._folder = _own_folder(self._port)
        self._file = self._folder / f"rank{rank:05d}-{os.getpid()}.json"
        self._version = version
        self._server: _NodeServer | None = None

    def metrics(self, resource: Mapping[str, str | int], metrics: Sequence[Metric], start: int, end: int) -> bool:
        """Leaves the newest metrics for the node's server; returns whether that went well."""
        labels = {name: str(resource.get(name, "")) for name in LABELS}
        told = {"labels": labels, "metrics": [metric.to_json() for metric in metrics]}
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(told), encoding="utf-8")
        fresh.replace(self._file)
        if self._server is None:
            self._server = _NodeServer.begin(self._host, self._port, self._folder, self._version)
        return True

    def close(self) -> None:
        """The rank is done: its series end, and its port is free for another rank."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self._file.unlink(missing_ok=True)


def _own_folder(port: int) -> Path:
    """A directory of this node that only this user can write to."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"memguard-prometheus-{user}-{port}"
    folder.mkdir(mode=0o700, exist_ok=True)
    told = folder.lstat()
    if not stat.S_ISDIR(told.st_mode) or (hasattr(os, "getuid") and told.st_uid != user):
        raise OSError(f"{folder} belongs to another user; set OTEL_EXPORTER_PROMETHEUS_PORT to another port")
    return folder


@final
class _NodeServer:
    """The node's HTTP server: made by the first rank that finds the port free."""

    def __init__(self, server: Any, thread: Any, provider: Any) -> None:
        self._server, self._thread, self._provider = server, thread, provider

    @classmethod
    def begin(cls, host: str, port: int, folder: Path, version: str) -> _NodeServer | None:
        """The server; None where another process has the port."""
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import MetricsData
        from prometheus_client import CollectorRegistry, start_http_server

        class NodeReader(PrometheusMetricReader):
            """OpenTelemetry's exporter, for metrics that other processes counted."""

            def hand_over(self, data: MetricsData) -> None:
                """These are what the next scrape shows."""
                self._receive_metrics(data)

        class Node:
            """What the port shows: read from the node's files at each scrape."""

            def collect(self) -> Iterator[Any]:
                """Everything, as Prometheus' own families."""
                with reading:  # two scrapes at one time
                    reader.hand_over(_read(folder, version))
                    return iter(list(translated.collect()))

        reading = threading.Lock()
        shown, translated = CollectorRegistry(), CollectorRegistry()
        try:
            server, thread = start_http_server(port, host, shown)
        except OSError:
            return None
        reader = NodeReader(
            disable_target_info=True,
            scope_info_enabled=False,
            resource_attribute_filter=lambda name: name.startswith("memguard."),
            registry=translated,
        )
        provider = MeterProvider([reader], shutdown_on_exit=False)  # a reader without one is refused
        shown.register(Node())
        return cls(server, thread, provider)

    def close(self) -> None:
        """Gives the port back."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(1.0)
        self._provider.shutdown()


def _read(folder: Path, version: str) -> Any:
    """The newest metrics of all ranks of the node, each with the same labels."""
    from opentelemetry.sdk.resources import Resource

    from memguard.sinks.export.otel_data import metrics_data

    told, now = [], time_ns()
    for path in sorted(folder.glob("rank*.json")):
        try:
            if now / 1e9 - path.stat().st_mtime > STALE_SECONDS:
                path.unlink(missing_ok=True)
                continue
            data = json.loads(path.read_text(encoding="utf-8"))
            metrics = [Metric.from_json(each) for each in data["metrics"]]
            told.append((Resource(data["labels"]), metrics))
        except (OSError, ValueError, KeyError, TypeError):  # gone meanwhile, or another version's
            continue
    return metrics_data(told, version, now, now)
