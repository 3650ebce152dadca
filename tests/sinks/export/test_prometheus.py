import socket
import urllib.request
from collections.abc import Iterator

import pytest

pytest.importorskip("opentelemetry.exporter.prometheus")

from prometheus_client.parser import text_string_to_metric_families

from memguard.sinks.export.place import Exporting
from memguard.sinks.export.sink import ExportSink, make_export_sink
from tests.sinks.export.test_otlp import GIB, RUN, batch, leak


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        chosen = free.getsockname()[1]
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(chosen))
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_HOST", "127.0.0.1")
    yield chosen


def make(rank: int, **coordinates: int) -> ExportSink:
    sink = make_export_sink("prometheus", Exporting(rank=rank, world_size=2, node="0", coordinates=coordinates))
    assert sink is not None
    return sink


def scrape(port: int) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Every sample by its name."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    samples: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return samples


def test_one_port_of_a_node_tells_of_all_its_ranks(port: int) -> None:
    """Prometheus' own parser reads gauges, counters and histograms of each rank, told apart by labels."""
    sinks = [make(0, pp=0), make(1, pp=1)]
    for rank, sink in enumerate(sinks):
        sink.records([batch(0, allocated_peak_bytes=(30 + rank) * GIB)], RUN)
        sink.records([batch(1, num_alloc_retries=2)], RUN)
        sink.finding(leak())
        sink.deliver()
    told = scrape(port)
    peaks = {(labels["memguard_rank"], labels["memguard_parallel_pp"]): value
             for labels, value in told["memguard_memory_allocated_bytes"]}  # fmt: skip
    assert peaks == {("0", "0"): 30 * GIB, ("1", "1"): 31 * GIB}
    assert [value for _, value in told["memguard_batches_total"]] == [2, 2]
    assert [value for _, value in told["memguard_batch_memory_allocated_bytes_count"]] == [2, 2]
    whole = [value for labels, value in told["memguard_batch_memory_allocated_bytes_bucket"] if labels["le"] == "+Inf"]
    assert whole == [2, 2]
    assert [value for _, value in told["memguard_findings"]] == [1, 1]
    for sink in sinks:
        sink.close()


def test_another_rank_takes_the_port_over(port: int) -> None:
    """When the rank that served is done, the next one that delivers serves the rest of the node."""
    first, second = make(0), make(1)
    for sink in (first, second):
        sink.records([batch(0)], RUN)
        sink.deliver()
    assert len(scrape(port)["memguard_batches_total"]) == 2
    first.close()
    second._next = 0.0
    second.deliver()
    (left,) = scrape(port)["memguard_batches_total"]
    assert left[0]["memguard_rank"] == "1"
    second.close()
