import itertools
from pathlib import Path
from typing import Any

import pytest

from memguard.records.findings import Severity
from memguard.records.stats import BatchRecord, Run, Stage
from memguard.sinks.tensorboard import WAITING, TensorBoardSink
from memguard.sinks.tensorboard_events import scalars_event, text_event
from memguard.text.units import GIB
from tests.fakes import finding

RUN = Run(device="cuda:0")


def record(batch: int, peak: int = GIB, stage: Stage = Stage.TRAIN, **more: Any) -> BatchRecord:
    return BatchRecord(
        batch=batch, stage=stage, time=0.0, seconds=0.0, allocated_peak_bytes=peak, allocated_end_bytes=peak // 2,
        reserved_peak_bytes=2 * peak, num_alloc_retries=0, host_rss_bytes=GIB, device_used_bytes=GIB, **more,
    )  # fmt: skip


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 1000, "tensors": 10})
    events.Reload()
    return events


def steps(folder: Path) -> list[int]:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    return [event.step for event in EventFileLoader(str(next(folder.iterdir()))).Load()]


class FakeWriter:
    """A writer of another family, like tensorboardX's: it must be given no protocol buffers."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def add_scalar(self, *args: Any) -> None:
        self.calls.append(args)

    def add_text(self, *args: Any) -> None:
        self.calls.append(args)

    def flush(self) -> None:
        self.calls.append(("flush",))


def test_a_spike_of_one_batch_in_20000_is_in_the_curve(tmp_path: Path) -> None:
    """TensorBoard keeps 1000 points of a curve; ours carry the maximum of their window, so none is lost."""
    sink = TensorBoardSink(log_every=50, logdir=tmp_path)
    for batch in range(20_000):
        sink.records([record(batch, 9 * GIB if batch == 12_345 else GIB)], RUN)
    sink.close()
    points = read(tmp_path).Scalars("memory/allocated_peak_gib")
    assert len(points) == 400
    assert [point.step for point in points if point.value > 8] == [12_349]


def test_curves_are_few_well_named_and_have_units(tmp_path: Path) -> None:
    """The whole list, for each stage."""
    sink = TensorBoardSink(log_every=1, logdir=tmp_path)
    sink.records([record(0)], RUN)
    sink.records([record(1, stage=Stage.VALIDATION)], RUN)
    sink.close()
    names = [
        "allocated_peak_gib",
        "allocated_end_gib",
        "reserved_gib",
        "device_used_gib",
        "host_rss_gib",
        "alloc_retries",
    ]
    expected = {f"memory/{name}" for name in names} | {f"memory/validation/{name}" for name in names}
    events = read(tmp_path)
    assert set(events.Tags()["scalars"]) == expected
    assert events.Scalars("memory/reserved_gib")[0].value == 2.0


def test_a_point_waits_only_for_those_that_come_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points of long batches are handed over one by one; those of short ones some at a time."""
    seconds = itertools.count(1000.0, 10.0)
    monkeypatch.setattr("memguard.sinks.tensorboard.now", lambda: next(seconds))
    sink = TensorBoardSink(log_every=1, logdir=tmp_path)
    for batch in range(3):
        sink.records([record(batch)], RUN)
    assert steps(tmp_path)[-1] == 2
    monkeypatch.setattr("memguard.sinks.tensorboard.now", lambda: 1020.0)
    for batch in range(3, 2 + WAITING):
        sink.records([record(batch)], RUN)
    assert steps(tmp_path)[-1] == 2
    sink.records([record(2 + WAITING)], RUN)
    assert steps(tmp_path)[-WAITING:] == list(range(3, 3 + WAITING))
    sink.close()


def test_points_that_wait_are_written_before_what_comes_later(tmp_path: Path) -> None:
    """TensorBoard's fast loader drops what steps backward; and none of them waits for ever."""
    sink = TensorBoardSink(log_every=1, logdir=tmp_path)
    for batch in range(3 * WAITING + 2):
        sink.records([record(batch)], RUN)
        if batch == WAITING + 2:
            sink.finding(finding(batch=batch, severity=Severity.WARNING))
    sink.close()
    written = steps(tmp_path)
    assert written == sorted(written) and set(written) == set(range(3 * WAITING + 2))


def test_a_logged_step_costs_less_than_2_kib(tmp_path: Path) -> None:
    """Measured on the event file."""
    sizes = []
    for count in (100, 1100):
        folder = tmp_path / str(count)
        sink = TensorBoardSink(log_every=1, logdir=folder)
        for batch in range(count):
            sink.records([record(batch)], RUN)
        sink.close()
        sizes.append(next(folder.iterdir()).stat().st_size)
    assert (sizes[1] - sizes[0]) / 1000 < 2048


def test_what_a_device_does_not_tell_has_no_curve(tmp_path: Path) -> None:
    """Unknown is absent, not zero."""
    sink = TensorBoardSink(log_every=1, logdir=tmp_path)
    sink.records([BatchRecord(batch=0, stage=Stage.TRAIN, time=0, seconds=0, host_rss_bytes=GIB)], RUN)
    sink.close()
    assert read(tmp_path).Tags()["scalars"] == ["memory/host_rss_gib"]


def test_findings_stand_in_one_text_with_their_newest_state(tmp_path: Path) -> None:
    """A cumulative table: the last text has them all."""
    sink = TensorBoardSink(log_every=1, logdir=tmp_path)
    sink.finding(finding(line=1))
    sink.finding(finding(line=2, message="a | b\nc"))
    sink.finding(finding(line=1, severity=Severity.CRITICAL))
    sink.close()
    events = read(tmp_path)
    assert "memory/findings/text_summary" in events.Tags()["tensors"]
    text = events.Tensors("memory/findings/text_summary")[-1].tensor_proto.string_val[0].decode()
    assert text.count("critical") == 1 and text.count("warning") == 1
    assert "a \\| b\\nc" in text


def test_the_users_own_torch_writer_gets_the_curves_and_stays_open(tmp_path: Path) -> None:
    """One event file, and the user can go on writing."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(tmp_path))
    sink = TensorBoardSink(log_every=1, writer=lambda: writer, logdir=tmp_path / "unused")
    sink.records([record(5)], RUN)
    sink.finding(finding())
    sink.close()
    writer.add_scalar("loss", 1.0, 1)
    writer.close()
    assert {"loss", "memory/reserved_gib"} <= set(read(tmp_path).Tags()["scalars"])
    assert not (tmp_path / "unused").exists()


def test_a_foreign_writer_gets_plain_calls_only() -> None:
    """Protocol buffers would kill tensorboardX's thread silently."""
    writer = FakeWriter()
    sink = TensorBoardSink(log_every=1, writer=lambda: writer)
    sink.records([record(3)], RUN)
    sink.finding(finding())
    sink.close()
    assert ("memory/allocated_peak_gib", 1.0, 3) in writer.calls
    assert [call[0] for call in writer.calls if call[0] == "memory/findings"] == ["memory/findings"]
    assert writer.calls[-1] == ("flush",)


def test_without_a_writer_or_directory_nothing_is_written() -> None:
    """Nothing to write to is no error."""
    sink = TensorBoardSink(log_every=1)
    sink.records([record(0)], RUN)
    sink.close()


def test_a_directory_with_letters_outside_the_locale_has_curves(tmp_path: Path) -> None:
    """Python's own spelling of bytes that are no UTF-8 is a name like any other."""
    sink = TensorBoardSink(log_every=1, logdir=tmp_path / "\udcc3\udcbc")
    sink.records([record(0)], RUN)
    sink.close()
    (file,) = (tmp_path / "\udcc3\udcbc").iterdir()
    assert file.stat().st_size > 100


def test_events_are_those_that_tensorboard_itself_would_write(tmp_path: Path) -> None:
    """TensorBoard's own classes read all of their fields, and its loader the file with its sums."""
    from google.protobuf.json_format import MessageToDict
    from tensorboard.compat.proto.event_pb2 import Event

    sink = TensorBoardSink(log_every=1, logdir=tmp_path, layout=True)
    sink.records([record(7)], RUN)
    sink.finding(finding())
    sink.close()
    tags = read(tmp_path).Tags()["tensors"]
    assert {"memory/findings/text_summary", "memguard/manifest", "custom_scalars__config__"} <= set(tags)
    curves = MessageToDict(Event.FromString(scalars_event({"a": 1.5, "b": 0.0}, 300, 1e9)))
    points = [{"tag": "a", "simpleValue": 1.5}, {"tag": "b", "simpleValue": 0.0}]
    assert curves == {"wallTime": 1e9, "step": "300", "summary": {"value": points}}
    (text,) = Event.FromString(text_event("t", "x" * 300, 2)).summary.value
    assert (text.tag, text.metadata.plugin_data.plugin_name) == ("t/text_summary", "text")
    assert text.tensor.string_val == [b"x" * 300] and text.tensor.tensor_shape.dim[0].size == 1


@pytest.mark.parametrize("batches", [1, 49])
def test_an_unfinished_window_is_written_at_the_end(batches: int, tmp_path: Path) -> None:
    """A short run has a point too."""
    sink = TensorBoardSink(log_every=50, logdir=tmp_path)
    for batch in range(batches):
        sink.records([record(batch)], RUN)
    sink.close()
    assert [point.step for point in read(tmp_path).Scalars("memory/reserved_gib")] == [batches - 1]


def test_the_run_tells_of_itself_and_a_layout_only_when_asked(tmp_path: Path) -> None:
    """The Memory tab's own event is always there; Custom Scalars is left alone by default."""
    for layout in (False, True):
        sink = TensorBoardSink(log_every=1, logdir=tmp_path / str(layout), layout=layout)
        sink.records([record(7)], RUN)
        sink.close()
        tags = read(tmp_path / str(layout)).Tags()["tensors"]
        assert "memguard/manifest" in tags
        assert ("custom_scalars__config__" in tags) is layout


def test_a_phase_has_a_curve_of_its_own(tmp_path: Path) -> None:
    """Under its name, those around it as folders; what a tag may not have is left out."""
    sink = TensorBoardSink(log_every=50, logdir=tmp_path)
    sink.phase("rollout", 3 * GIB, 7)
    sink.phase("update > log probs", GIB, 8)
    sink.close()
    events = read(tmp_path)
    assert [(p.step, p.value) for p in events.Scalars("memory/phase/rollout/allocated_peak_gib")] == [(7, 3.0)]
    assert [p.value for p in events.Scalars("memory/phase/update/log_probs/allocated_peak_gib")] == [1.0]
