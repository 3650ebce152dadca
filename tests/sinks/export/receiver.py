"""An OTLP receiver on loopback: decodes what OpenTelemetry's exporters send over HTTP, and can be killed."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

Series = tuple[str, tuple[tuple[str, Any], ...], tuple[tuple[str, Any], ...]]


def plain(attributes: Any) -> dict[str, Any]:
    """Attributes as a dictionary."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


class Receiver:
    """What arrived, decoded.

    Attributes:
        series: The newest point of each series: by metric, resource and attributes.
        logs: The log records with their resource.
        requests: How many came for each path.
    """

    def __init__(self, port: int = 0) -> None:
        self.series: dict[Series, Any] = {}
        self.logs: list[tuple[dict[str, Any], Any]] = []
        self.requests: Counter[str] = Counter()
        self.headers: list[dict[str, str]] = []
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                receiver._open.add(self.connection)

            def finish(self) -> None:
                receiver._open.discard(self.connection)
                super().finish()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                answer = receiver.take(self.path, body, dict(self.headers))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

        self._server = Server(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """For OTEL_EXPORTER_OTLP_ENDPOINT."""
        return f"http://127.0.0.1:{self.port}"

    def take(self, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        with self._lock:
            self.requests[path] += 1
            self.headers.append(headers)
            if path == "/v1/logs":
                for resource_logs in ExportLogsServiceRequest.FromString(body).resource_logs:
                    resource = plain(resource_logs.resource.attributes)
                    for scope in resource_logs.scope_logs:
                        self.logs += [(resource, record) for record in scope.log_records]
                return ExportLogsServiceResponse().SerializeToString()
            for told in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                resource_key = tuple(sorted(plain(told.resource.attributes).items()))
                for scope in told.scope_metrics:
                    for metric in scope.metrics:
                        for point in getattr(metric, metric.WhichOneof("data")).data_points:
                            attributes = tuple(sorted(plain(point.attributes).items()))
                            self.series[metric.name, resource_key, attributes] = point
            return ExportMetricsServiceResponse().SerializeToString()

    def values(self, name: str) -> dict[tuple[tuple[str, Any], ...], Any]:
        """The newest points of a metric by their attributes."""
        return {attributes: point for (metric, _, attributes), point in self.series.items() if metric == name}

    def resources(self) -> list[dict[str, Any]]:
        """Whoever sent metrics."""
        return [dict(key) for key in dict.fromkeys(resource for _, resource, _ in self.series)]

    def kill(self) -> None:
        """The collector is gone: its connections break, and new ones are refused."""
        self._server.shutdown()
        self._server.server_close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
