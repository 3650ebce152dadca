import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import memguard
from memguard.backends.auto import AutoBackend
from memguard.backends.host import HostBackend
from memguard.backends.interface import Backend
from memguard.evidence.interface import ProbeContext
from memguard.forks import process
from memguard.integrations.loop.fast_path_hooks import StepEnd
from memguard.recorder import RSS_FIRST, Recorder
from memguard.recording.reader import Recording
from memguard.records.facts import Fact
from memguard.records.fast_path_state import FastPathState, LoopEvent
from memguard.records.findings import Finding, Severity
from memguard.records.stats import BatchRecord, Run, Stage
from memguard.report.summaries import summarize
from tests.fakes import MIB, ListSink, ScriptedBackend, ScriptedDetector, claim


def make(backend: Backend | None = None, **settings: object) -> Recorder:
    recorder = Recorder(backend or ScriptedBackend(), Run(device="scripted:0"), **settings)  # type: ignore[arg-type]
    recorder.open({})
    return recorder


def train(recorder: Recorder, batches: int) -> None:
    recorder.stage_start(Stage.TRAIN, epoch=0)
    for index in range(batches):
        recorder.batch_start(index)
        recorder.batch_end()
    recorder.stage_end(Stage.TRAIN)


def unexpected(error: Exception) -> None:
    raise error


def test_a_batch_becomes_a_record_with_what_was_there_before_and_after() -> None:
    """Start is the previous boundary's level, end and peak are the batch's own."""
    recorder = make(ScriptedBackend([(1, 1), (2, 2), (5, 9)]))
    train(recorder, 1)
    record = recorder.records[0]
    levels = (record.allocated_start_bytes, record.allocated_peak_bytes, record.allocated_end_bytes)
    assert levels == (2 * MIB, 9 * MIB, 5 * MIB)
    assert (record.stage, record.epoch, record.index, record.batch) == (Stage.TRAIN, 0, 0, 0)
    recorder.close()


def test_a_spike_between_two_stages_gets_a_record_of_its_own() -> None:
    """What rose and fell between stages is neither lost nor blamed on a batch."""
    recorder = make(ScriptedBackend([(1, 1), (1, 1), (1, 3), (1, 1), (1, 50), (1, 1)]))
    train(recorder, 1)
    recorder.stage_start(Stage.VALIDATION)
    recorder.stage_end(Stage.VALIDATION)
    assert [(r.stage, r.allocated_peak_bytes) for r in recorder.records] == [
        (Stage.TRAIN, 3 * MIB),
        (Stage.OTHER, 50 * MIB),
    ]
    recorder.close()


def test_resident_memory_is_read_more_rarely_after_the_first_readings() -> None:
    """In every batch of 30 ms at first, then in one of nine; each batch has the newest reading."""
    times, read = iter(range(10**9)), []
    recorder = make(
        clock=lambda: 0.03 * next(times),
        rss=lambda: read.append(len(read)) or read[-1],
    )
    train(recorder, RSS_FIRST + 450)
    seen = [record.host_rss_bytes for record in recorder.records]
    assert seen[:RSS_FIRST] == list(range(RSS_FIRST))
    assert len(read) == pytest.approx(RSS_FIRST + 50, abs=2)
    assert seen[-1] == read[-1]
    recorder.close()


def step_end_of(recorder: Recorder) -> StepEnd:
    taker: Any = SimpleNamespace(row=recorder.row, step_end=None, batch_ended=recorder.end_alike)
    probes: Any = SimpleNamespace(watch=ProbeContext(), optimizer_step_end=None)
    return StepEnd(taker, probes, failed=unexpected)


def expect_end(row: FastPathState, step: object) -> None:
    """A batch of the row is open, and this step ends it."""
    row.expected = LoopEvent()
    row.expected.stepped, row.expected.ends = id(step), True
    row.is_open = True


def test_the_first_batches_have_a_reading_of_resident_memory_each() -> None:
    """However short they are: what the first one allocates is no growth of those that follow."""
    levels = iter(range(10**9))
    recorder = make(clock=lambda: 1e9, rss=lambda: next(levels))
    train(recorder, 4)
    seen = [record.host_rss_bytes for record in recorder.records]
    assert len(set(seen)) == len(seen)
    recorder.close()


def test_the_short_way_makes_the_records_of_the_long_one() -> None:
    """Whatever the clock does: a block ends after 64 batches or half a second, and RAM is read as often."""

    def told(*, short: bool, step: float) -> list[object]:
        times, read = iter(range(10**9)), iter(range(10**9))
        boundaries = [(1, 1), *((1 + i % 3, 2 + i % 5) for i in range(400))]
        recorder = make(ScriptedBackend(boundaries), clock=lambda: 1e9 + step * next(times), rss=lambda: next(read))
        recorder.stage_start(Stage.TRAIN, epoch=3)
        row = recorder.row
        step_end = step_end_of(recorder)
        for i in range(300):
            if short and i > 70:
                if i == 71:
                    row.shapes = recorder.number_of((("x", (4, 4), "float32"),))
                    recorder.begin_row()
                expect_end(row, row)
                step_end(row, (), {})  # type: ignore[arg-type]
            else:
                recorder.batch_start(None, (("x", (4, 4), "float32"),))
                recorder.optimizer_steps += 1
                recorder.batch_end()
        recorder.stage_end(Stage.TRAIN)
        recorder.close()
        return [
            (r.batch, r.stage, r.epoch, r.index, r.optimizer_steps, r.shapes, r.allocated_peak_bytes, r.num_ooms)
            for r in recorder.records
        ]

    for step in (1e-5, 0.004, 0.3, -0.01):
        assert told(short=True, step=step) == told(short=False, step=step)


def test_a_device_that_settles_in_the_midst_of_a_row_is_asked_from_then_on() -> None:
    """The looks before are those of the search, the looks after its own, whoever has the batches worked out between."""
    found: list[Backend] = []
    recorder = make(AutoBackend(lambda: found[0] if found else None))
    recorder.stage_start(Stage.TRAIN)
    step_end, step = step_end_of(recorder), object()
    recorder.begin_row()
    for i in range(300):
        expect_end(recorder.row, step)
        step_end(step, (), {})  # type: ignore[arg-type]
        if i == 150:
            found.append(ScriptedBackend([(1, 1)] * 300))
        if i in (149, 155):
            assert len(recorder.records) == i + 1
    assert [record.batch for record in recorder.records] == list(range(300))
    assert not recorder.is_off("backend")
    recorder.close()


def test_the_highest_ram_of_a_stage_need_not_be_where_the_device_stood_highest(tmp_path: Path) -> None:
    """Live and from the recording, the summary tells the highest there was."""
    levels = iter([3 * MIB, 9 * MIB, 5 * MIB])
    times = iter(range(10**6))
    recorder = make(
        ScriptedBackend([(1, 1), (1, 1), (1, 9), (1, 2), (1, 2), (1, 2)]),
        logdir=tmp_path,
        clock=lambda: float(next(times)),
        rss=lambda: next(levels, 4 * MIB),
    )
    train(recorder, 4)
    recorder.close()
    live = recorder.summary.stages[Stage.TRAIN]
    (path,) = tmp_path.rglob("*.bin")
    read = summarize(Recording.open(path)).stages[Stage.TRAIN]
    assert live.host_rss_peak_bytes == read.host_rss_peak_bytes == 9 * MIB
    assert live.peak.host_rss_bytes == read.peak.host_rss_bytes != 9 * MIB


def test_a_checkpoint_is_a_record() -> None:
    """Saving shows up as a stretch of its own."""
    recorder = make()
    recorder.stage_start(Stage.TRAIN)
    recorder.stage_start(Stage.CHECKPOINT)
    recorder.stage_end(Stage.CHECKPOINT)
    assert [record.stage for record in recorder.records] == [Stage.CHECKPOINT]
    recorder.close()


def test_counters_are_told_as_differences_and_survive_a_reset_by_others() -> None:
    """A cumulative counter that somebody set back to zero never counts negative."""
    backend = ScriptedBackend()
    recorder = make(backend)
    recorder.stage_start(Stage.TRAIN)
    seen = []
    for retries in (3, 3, 1):
        backend.retries = retries
        recorder.batch_start()
        recorder.batch_end()
        seen.append(recorder.records[-1].num_alloc_retries)
    assert seen == [3, 0, 1]
    recorder.close()


def test_one_cause_is_told_once_and_counted() -> None:
    """The same rule, place and holder is one finding; sinks hear of it once."""
    sink = ListSink()
    recorder = make(detectors=[ScriptedDetector(lambda record, run: [claim(batch=record.batch)])], sinks=[sink])
    train(recorder, 5)
    summary = recorder.close()
    assert [(f.count, f.batch) for f in summary.findings] == [(5, 0)]
    assert len(sink.findings) == 1
    assert sink.closed == 1


def test_a_finding_that_becomes_worse_is_told_again() -> None:
    """A higher severity replaces the finding and reaches the sinks."""
    sink = ListSink()
    recorder = make(sinks=[sink])
    for severity in (Severity.INFO, Severity.CRITICAL, Severity.WARNING):
        recorder.add(claim(severity=severity))
    assert [f.severity for f in sink.findings] == [Severity.INFO, Severity.CRITICAL]
    assert recorder.close().findings[0].count == 3


def test_the_summary_tells_how_large_a_cause_has_become() -> None:
    """Of findings of one severity the largest is told at the end, with the batch of the first; sinks hear of one."""
    sink = ListSink()
    recorder = make(sinks=[sink])
    for batch, size in ((3, 100), (5, 150), (9, 1000), (12, 900)):
        recorder.add(claim(message=f"{size} bytes", bytes=size, batch=batch))
    (told,) = recorder.close().findings
    assert (told.message, told.bytes, told.batch, told.count) == ("1000 bytes", 1000, 3, 4)
    assert len(sink.findings) == 1


def test_a_failing_detector_is_logged_once_with_its_traceback_and_switched_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Law 1: the run goes on, the other parts too."""

    def fail(record: object, run: object) -> list[object]:
        raise RuntimeError("a bug of ours")

    sink = ListSink()
    recorder = make(detectors=[ScriptedDetector(fail)], sinks=[sink])  # type: ignore[arg-type]
    with caplog.at_level(logging.ERROR, "memguard"):
        train(recorder, 5)
    assert ["Traceback" in record.getMessage() for record in caplog.records] == [True]
    assert caplog.records[0].exc_info is None
    assert len(recorder.records) == 5
    assert len(sink.told) == 5
    assert "a bug of ours" in recorder.close().notes[0]


def test_a_failing_backend_ends_the_records_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    """Without numbers there are no records; the events still pass."""
    backend = ScriptedBackend()
    recorder = make(backend)
    backend._boundaries = []
    train(recorder, 3)
    assert len(recorder.records) == 0
    assert "backend" in recorder.close().notes[0]


def test_interrupts_of_the_user_pass_through() -> None:
    """KeyboardInterrupt inside a detector is the user's, not ours."""

    def interrupt(record: object, run: object) -> list[object]:
        raise KeyboardInterrupt

    recorder = make(detectors=[ScriptedDetector(interrupt)])  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        train(recorder, 1)
    recorder.close()


def test_an_unwritable_logdir_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The training goes on without a recording."""
    (tmp_path / "file").write_text("in the way")
    recorder = make(logdir=tmp_path / "file")
    train(recorder, 3)
    assert len(recorder.records) == 3
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1
    assert recorder.close().recording is None


def test_a_disk_that_fills_silences_the_recording_and_keeps_what_was_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write cut short stays the last thing in the file; the reader drops it."""
    import os

    recorder = make(logdir=tmp_path)
    train(recorder, 2)
    assert recorder.recording is not None
    path, write = recorder.recording.path, os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:50]))
    train(recorder, 3)
    monkeypatch.undo()
    recorder.close()
    read = Recording.open(path)
    assert len(read) == 2
    assert "torn" in read.notes[0]
    assert len([record for record in caplog.records if "recording stopped" in record.message]) == 1


def test_facts_reach_the_detectors() -> None:
    """What is learned is judged."""
    recorder = make(detectors=[ScriptedDetector(lambda record, run: [])])
    recorder.listeners.append(lambda records: recorder.learn([Fact(batch=records[0].batch)]))
    train(recorder, 1)
    assert [f.message for f in recorder.close().findings] == ["learned"]


def test_allow_silences_a_rule_in_the_batches_its_block_touches() -> None:
    """A finding made at the end of a batch in which the block was open is dropped; later ones are told."""
    recorder = make(detectors=[ScriptedDetector(lambda record, run: [claim(code="MG101", line=record.batch)])])
    recorder.stage_start(Stage.TRAIN)
    recorder.batch_start()
    with memguard.allow("MG101"):
        pass
    recorder.batch_end()
    recorder.batch_start()
    recorder.batch_end()
    assert [f.line for f in recorder.close().findings] == [1]


def test_a_closed_recorder_ignores_events() -> None:
    """Events after the end change nothing."""
    recorder = make()
    summary = recorder.close()
    train(recorder, 2)
    assert recorder.close() is summary
    assert summary.batches == 0


def test_the_input_shapes_of_the_peak_stand_in_the_summary() -> None:
    """The batch that set the peak is told by its shapes."""
    recorder = make(ScriptedBackend([(1, 1), (1, 1), (1, 3), (1, 9), (1, 2), (1, 1)]))
    recorder.stage_start(Stage.TRAIN)
    for length in (10, 99, 20):
        recorder.batch_start(length, (("x", (4, length), "float32"),))
        recorder.batch_end()
    assert recorder.close().peak.shapes == [["x", (4, 99), "float32"]]


def test_a_rule_that_fails_hides_no_record_from_those_after_it() -> None:
    """Records that are alike are shown together: one rule falls silent, the next one sees them all."""
    seen: list[int] = []

    def fails(record: BatchRecord, run: Run) -> list[Finding]:
        if record.batch == 150:
            raise ZeroDivisionError("planted")
        return []

    def sees(record: BatchRecord, run: Run) -> list[Finding]:
        seen.append(record.batch)
        return []

    first, second = ScriptedDetector(fails), ScriptedDetector(sees)
    second.code = "MG998"  # type: ignore[misc]
    recorder = make(HostBackend(), detectors=(first, second), clock=lambda: 1.0)
    train(recorder, 300)
    recorder.close()
    assert seen == list(range(300))


def test_a_forked_child_tells_nothing_of_the_parents_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits to be worked out is the parent's, whatever the child asks for."""
    recorder = make(HostBackend(), logdir=tmp_path, clock=lambda: 1.0)
    recorder.stage_start(Stage.TRAIN)
    for _ in range(100):
        recorder.batch_start()
        recorder.batch_end()
    (path,) = tmp_path.rglob("*.bin")
    size = path.stat().st_size
    with monkeypatch.context() as child:
        child.setattr(process, "pid", process.pid + 1)
        assert len(recorder.records) == len(recorder.records) < 100
        recorder.close()
        assert path.stat().st_size == size
    recorder.close()
    assert [record.batch for record in Recording.open(path).records()] == list(range(100))


def test_two_that_ask_at_once_have_the_batches_told_in_order() -> None:
    """A batch ends on another thread, and is asked for, while earlier ones are being told: it comes after them."""

    def asks(records: Sequence[BatchRecord]) -> None:
        def one_more() -> None:
            recorder.batch_start()
            recorder.batch_end(at_once=True)

        if records[-1].batch == 120:
            thread = threading.Thread(target=one_more)
            thread.start()
            thread.join()

    sink = ListSink()
    recorder = make(HostBackend(), sinks=(sink,))
    recorder.listeners.append(asks)
    recorder.stage_start(Stage.TRAIN)
    for _ in range(200):
        recorder.batch_start()
        recorder.batch_end(at_once=True)
    recorder.stage_end(Stage.TRAIN)
    recorder.close()
    assert [record.batch for record in sink.told] == list(range(201))
