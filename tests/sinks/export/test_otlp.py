import logging
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

import memguard
from memguard.options import Options
from memguard.recording.reader import Recording
from memguard.records.findings import Finding, Severity
from memguard.records.stats import BatchRecord, Run, Stage
from memguard.sinks.export.metrics import MOST_PHASES
from memguard.sinks.export.place import Exporting
from memguard.sinks.export.sink import LONGEST_PAUSE_SECONDS, ExportSink, make_export_sink
from tests.sinks.export.receiver import Receiver

GIB = 1 << 30
RUN = Run(device="cuda:0", device_name="NVIDIA H100", device_total_bytes=80 * GIB, rank=5, world_size=8)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    made = Receiver()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.endpoint)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=blue")
    yield made
    made.kill()


def batch(number: int, **values: object) -> BatchRecord:
    told = {"stage": Stage.TRAIN, "time": float(number), "seconds": 0.5, "allocated_peak_bytes": 30 * GIB,
            "reserved_peak_bytes": 40 * GIB, "host_rss_bytes": 5 * GIB, "num_alloc_retries": 0}  # fmt: skip
    return BatchRecord(batch=number, **{**told, **values})  # type: ignore[arg-type]


def leak(message: str = "losses keeps graphs.", severity: Severity = Severity.WARNING) -> Finding:
    return Finding(
        code="MG101", name="retained-graph", severity=severity, message=message, advice="detach", file="/a/train.py",
        line=41, function="fit", holder="losses", bytes=GIB,
    )  # fmt: skip


def make(kind: str = "otlp", clock: Clock | None = None, **place: object) -> tuple[ExportSink, Clock]:
    clock = clock or Clock()
    exporting = Exporting(rank=5, world_size=8, node="1", run="job-7", **place)  # type: ignore[arg-type]
    made = make_export_sink(kind, exporting)
    assert made is not None
    return ExportSink(exporting, made._make, every=10.0, clock=clock), clock


def test_batches_become_gauges_counters_and_histograms_with_the_rank_as_resource(receiver: Receiver) -> None:
    """By stage and phase, under semantic conventions' names where they exist, with headers from the environment."""
    sink, _ = make(coordinates={"pp": 3, "tp": 0})
    sink.phase_at = lambda number: "update" if number else None
    sink.records([batch(0)], RUN)
    sink.records([batch(1, allocated_peak_bytes=50 * GIB), batch(2, allocated_peak_bytes=50 * GIB)], RUN)
    sink.records([batch(3, num_alloc_retries=4, device_used_bytes=60 * GIB)], RUN)
    sink.phase("update", 50 * GIB, 2)
    sink.deliver()
    (resource,) = receiver.resources()
    assert resource["service.name"] == "memguard"
    assert {name: resource[f"memguard.{name}"] for name in ("rank", "world_size", "node", "run")} == {
        "rank": 5, "world_size": 8, "node": "1", "run": "job-7",
    }  # fmt: skip
    assert (resource["memguard.parallel.pp"], resource["memguard.parallel.tp"]) == (3, 0)
    assert "memguard.parallel.dp" not in resource
    plain, update = (
        (("memguard.phase", ""), ("memguard.stage", "train")),
        (("memguard.phase", "update"), ("memguard.stage", "train")),
    )
    assert {key: each.as_int for key, each in receiver.values("memguard.batches").items()} == {plain: 1, update: 3}
    assert receiver.values("memguard.allocator.retries")[update].as_int == 4
    assert receiver.values("memguard.memory.allocated")[update].as_int == 50 * GIB
    assert receiver.values("memguard.memory.headroom")[update].as_int == 40 * GIB
    (used,) = receiver.values("hw.gpu.memory.usage").values()
    assert used.as_int == 60 * GIB
    counted = receiver.values("memguard.batch.memory.allocated")[update]
    assert (counted.count, counted.max, counted.min) == (3, 50 * GIB, 30 * GIB)
    assert counted.sum == (50 + 50 + 30) * GIB and sum(counted.bucket_counts) == 3
    assert len(counted.bucket_counts) == len(counted.explicit_bounds) + 1
    assert receiver.headers[0]["x-team"] == "blue"
    sink.close()


def test_a_gauge_carries_the_highest_batch_since_the_last_export(receiver: Receiver) -> None:
    """A spike between two exports is seen in the next one, and gone in the one after."""
    sink, clock = make()
    told = []
    for peaks in ([30, 70, 30], [31], []):
        for peak in peaks:
            sink.records([batch(1, allocated_peak_bytes=peak * GIB)], RUN)
        clock.now += 10
        sink.deliver()
        (gauge,) = receiver.values("memguard.memory.allocated").values()
        told.append(gauge.as_int // GIB)
    assert told == [70, 31, 31]
    sink.close()


def test_findings_and_out_of_memory_reports_are_log_records_with_severity(receiver: Receiver) -> None:
    """Each state of a finding once, with its line under the conventions' names; a report is fatal."""
    sink, _ = make()
    sink.records([batch(0)], RUN)
    sink.finding(leak())
    sink.finding(leak())
    sink.finding(leak("losses keeps more.", Severity.CRITICAL))
    sink.out_of_memory("# Out of memory", 7)
    sink.deliver()
    sink.conclude([leak("losses keeps more.", Severity.CRITICAL)])
    sink.close()
    told = [(record.event_name, record.severity_number, record.body.string_value) for _, record in receiver.logs]
    assert sorted(told) == [
        ("memguard.finding", 13, "losses keeps graphs."),
        ("memguard.finding", 17, "losses keeps more."),
        ("memguard.out_of_memory", 21, "# Out of memory"),
    ]
    found = next(record for _, record in receiver.logs if record.event_name == "memguard.finding")
    attributes = {each.key: each.value for each in found.attributes}
    assert attributes["code.file.path"].string_value == "/a/train.py"
    assert attributes["code.line.number"].int_value == 41
    assert attributes["memguard.finding.code"].string_value == "MG101"
    counts = {dict(key)["memguard.finding.severity"]: point.as_int
              for key, point in receiver.values("memguard.findings").items()}  # fmt: skip
    assert counts == {"warning": 0, "critical": 1}


def test_a_collector_that_was_away_misses_nothing(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    """Counts and findings of its absence arrive when it is back; it is asked ever more seldom, and said once."""
    sink, clock = make()
    sink.exporting.rank = 0  # which speaks for all
    sink.records([batch(0)], RUN)
    sink.deliver()
    port = receiver.port
    receiver.kill()
    with caplog.at_level(logging.INFO):
        for number in range(1, 301):
            clock.now += 1
            sink.records([batch(number)], RUN)
            if number == 50:
                sink.finding(leak())
            sink.deliver()
        assert 5 < sink.failures < 15
        back = Receiver(port)
        clock.now += LONGEST_PAUSE_SECONDS
        sink.deliver()
    (batches,) = back.values("memguard.batches").values()
    assert batches.as_int == 301
    assert [record.body.string_value for _, record in back.logs] == ["losses keeps graphs."]
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "memguard: the collector does not answer; the recording on disk has everything",
        "memguard: the collector answers again",
    ]
    sink.close()
    back.kill()


def test_exporting_draws_no_number_of_the_training(receiver: Receiver) -> None:
    """OpenTelemetry's exporters draw from Python's generator with each request; the training's stays as it was."""
    sink, clock = make()
    random.seed(1)
    before = random.getstate()
    for number in range(3):
        sink.records([batch(number)], RUN)
        sink.finding(leak(f"state {number}"))
        clock.now += 10
        sink.deliver()
    sink.close()
    assert random.getstate() == before
    assert receiver.requests["/v1/metrics"] >= 3


def test_series_are_bounded_whatever_the_program_names(receiver: Receiver) -> None:
    """Of a thousand phases 32 have series of their own, and the rest is counted together."""
    sink, _ = make()
    sink.phase_at = lambda number: f"step-{number}"
    for number in range(1000):
        sink.records([batch(number)], RUN)
        sink.phase(f"step-{number}", GIB, number)
    sink.deliver()
    batches = receiver.values("memguard.batches")
    assert len(batches) == MOST_PHASES + 1
    assert sum(point.as_int for point in batches.values()) == 1000
    assert len(receiver.values("memguard.phase.memory.allocated")) == MOST_PHASES + 1
    sink.close()


def test_a_guarded_training_exports_and_its_recording_is_whole(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the option to the collector: each batch is counted, with the declared coordinates, and is on disk too."""
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "200")
    memguard.coordinates(pp=3)
    try:
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        with memguard.watch(model, optimizer, logdir=tmp_path, device="cpu", quiet=True, export="otlp") as guard:
            for _ in range(20):
                model(torch.ones(2, 4)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
    finally:
        memguard.coordinates(pp=None)
    assert sum(point.as_int for point in receiver.values("memguard.batches").values()) == 20
    assert all(resource["memguard.parallel.pp"] == 3 for resource in receiver.resources())
    assert guard.recording is not None
    recording = Recording.open(guard.recording)
    assert len(recording) == 20 and recording.session["coordinates"] == {"pp": 3}


def test_a_disabled_sdk_exports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_SDK_DISABLED is OpenTelemetry's own switch."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert make_export_sink("otlp", Exporting()) is None


def test_a_wrong_export_is_answered_with_the_valid_ones() -> None:
    """Like any option."""
    with pytest.raises(ValueError, match="otlp, prometheus"):
        Options.make(export="statsd")


def test_a_missing_sdk_is_said_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the training begins."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'torch-memguard\[otel\]'"):
        Options.make(export="otlp")


def test_a_training_without_a_collector_is_undisturbed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses, random numbers and the recording are the same where nothing listens at the endpoint."""
    receiver = Receiver()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    receiver.kill()

    def train(export: str | None) -> list[float]:
        torch.manual_seed(0)
        random.seed(0)
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        told = []
        options = {"logdir": tmp_path / str(export), "device": "cpu", "quiet": True, "export": export}
        with memguard.watch(model, optimizer, **options) as guard:  # type: ignore[arg-type]
            for _ in range(40):
                loss = model(torch.randn(2, 4)).square().sum()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                told += [loss.item(), random.random()]
        assert guard.recording is not None and len(Recording.open(guard.recording)) == 40
        return told

    assert train("otlp") == train(None)


def test_a_collector_that_accepts_and_never_answers_holds_up_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timeout of OpenTelemetry's environment bounds it; the next try comes later."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        sink, _ = make()
        sink.records([batch(0)], RUN)
        sink.finding(leak())
        sink.deliver()
        assert sink.failures == 1
        sink.records([batch(1)], RUN)
        sink.deliver()
        assert sink.failures == 1, "not asked again at once"
        sink.close()
