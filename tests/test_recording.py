import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memguard.errors import RecordingError
from memguard.recording.format import HEADER_BYTES, RECORD_BYTES, place_of
from memguard.recording.reader import Recording, find_recordings
from memguard.recording.writer import RecordingWriter
from memguard.records.findings import Severity
from memguard.records.stats import BatchRecord, Stage
from tests.fakes import finding


def record(batch: int, **changes: object) -> BatchRecord:
    fields = {
        "batch": batch,
        "stage": Stage.TRAIN,
        "time": 1e9 + batch,
        "seconds": 0.5,
        "allocated_peak_bytes": 10**9 * batch,
    }
    return BatchRecord(**{**fields, **changes})  # type: ignore[arg-type]


def write(folder: Path, count: int = 3) -> Path:
    writer = RecordingWriter(folder, {"device": "cuda:0", "rank": 0})
    for batch in range(count):
        writer.record(record(batch))
    writer.line("finding", finding(line=7).to_json())
    writer.close()
    return writer.path


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    """Every column survives, unknown ones as None."""
    full = record(
        3, epoch=2, index=5, shapes=1, device=0, optimizer_steps=9, allocated_start_bytes=1, allocated_end_bytes=2,
        reserved_bytes=2**40, reserved_peak_bytes=4, active_peak_bytes=5, inactive_split_bytes=6, device_used_bytes=7,
        host_rss_bytes=8, num_alloc_retries=1, num_ooms=0, num_device_alloc=3, num_device_free=4, stage=Stage.PREDICT,
    )  # fmt: skip
    writer = RecordingWriter(tmp_path, {})
    writer.record(full)
    writer.record(record(4))
    writer.close()
    assert list(Recording.open(writer.path).records()) == [full, record(4)]


def test_a_block_of_records_comes_back_as_it_was_written(tmp_path: Path) -> None:
    """Numbers that stay the same from batch to batch, change, or are not known any more: each record has its own."""
    alike = {"allocated_peak_bytes": 7, "host_rss_bytes": 8}
    block = [
        record(0, **alike),
        record(1, **alike),
        record(2),
        record(3, allocated_peak_bytes=None),
        record(4, **alike),
    ]
    writer = RecordingWriter(tmp_path, {})
    writer.record(*block)
    writer.record(record(5, **alike))
    writer.close()
    assert list(Recording.open(writer.path).records()) == [*block, record(5, **alike)]


def test_a_batch_costs_128_bytes(tmp_path: Path) -> None:
    """The file grows by exactly one record a batch."""
    assert write(tmp_path, 10).stat().st_size == HEADER_BYTES + 10 * RECORD_BYTES
    assert RECORD_BYTES == 128


def test_a_recording_cut_at_any_byte_reads_up_to_the_last_whole_record(tmp_path: Path) -> None:
    """A kill -9 may come between any two bytes."""
    path = write(tmp_path)
    data, lines = path.read_bytes(), path.with_suffix(".jsonl").read_bytes()
    for cut in [*range(HEADER_BYTES, len(data) + 1, 37), len(data)]:
        path.write_bytes(data[:cut])
        read = Recording.open(path)
        assert len(read) == (cut - HEADER_BYTES) // RECORD_BYTES
        assert bool(read.notes) == bool((cut - HEADER_BYTES) % RECORD_BYTES)
    for cut in range(0, len(lines), 11):
        path.with_suffix(".jsonl").write_bytes(lines[:cut])
        Recording.open(path)


def test_killed_in_the_middle_of_writing_it_reads(tmp_path: Path) -> None:
    """A real process, killed with -9 while it writes as fast as it can."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[2])\n"
        "from tests.test_recording import record\n"
        "from memguard.recording.writer import RecordingWriter\n"
        "w = RecordingWriter(sys.argv[1], {})\n"
        "b = 0\n"
        "while True:\n"
        "    w.record(record(b)); w.line('note', {'b': b}); b += 1\n"
        "    if b == 500: print('go', flush=True)\n"
    )
    root = str(Path(__file__).parents[1])
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), root], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"go\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    read = Recording.open(find_recordings(tmp_path)[0])
    assert len(read) >= 500
    assert [row["batch"] for row in read.rows] == list(range(len(read)))
    assert read.end is None


def test_two_runs_in_one_directory_have_two_files(tmp_path: Path) -> None:
    """A second start never writes into the first one's file, even within a millisecond."""
    paths = {write(tmp_path) for _ in range(5)}
    assert len(paths) == 5
    assert find_recordings(tmp_path) == sorted(paths)


def test_a_finding_is_read_in_its_newest_state(tmp_path: Path) -> None:
    """Later lines of one cause replace earlier ones."""
    writer = RecordingWriter(tmp_path, {})
    for count, severity in ((1, Severity.INFO), (7, Severity.CRITICAL)):
        writer.line("finding", finding(count=count, severity=severity, line=4).to_json())
    writer.line("finding", {"code": "broken"})
    writer.close()
    assert [(f.count, f.severity) for f in Recording.open(writer.path).findings] == [(7, Severity.CRITICAL)]


def test_what_is_written_cannot_change_its_kind(tmp_path: Path) -> None:
    """Data with a key of its own called kind is still found under the kind it was written as."""
    writer = RecordingWriter(tmp_path, {})
    writer.line("oom", {"kind": "leak", "batch": 3})
    writer.close()
    assert [line["batch"] for line in Recording.open(writer.path).of_kind("oom")] == [3]


def test_unknown_columns_and_stages_of_a_newer_minor_are_unsampled_tensors(tmp_path: Path) -> None:
    """Forward compatibility: what this reader does not know does not stop it."""
    path = write(tmp_path, 0)
    header = {"version": 1, "columns": [["batch", "<i8"], ["new", "<f8"], ["stage", "<i2"]], "stages": ["dreaming"]}
    text = b"memguard-recording\n" + json.dumps(header).encode()
    path.write_bytes(text.ljust(HEADER_BYTES - 1) + b"\n" + b"\x05" + b"\x00" * 17)
    read = Recording.open(path)
    assert [(r.batch, r.stage, r.allocated_peak_bytes) for r in read.records()] == [(5, Stage.OTHER, None)]


@pytest.mark.parametrize("content", [b"", b"memguard-recording\n", b"memguard-recording\n{", b"not it at all" * 1000])
def test_what_is_no_recording_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    """The error names the file."""
    path = tmp_path / "rank00000-x.bin"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match="rank00000-x"):
        Recording.open(path)


def test_a_newer_format_says_so(tmp_path: Path) -> None:
    """A future version asks for an update instead of showing nonsense."""
    path = write(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 9'))
    with pytest.raises(RecordingError, match="version 9"):
        Recording.open(path)


def test_mutated_recordings_raise_nothing_but_the_documented_error(tmp_path: Path) -> None:
    """A stranger's file can be wrong anywhere; reading it ends in records or in a RecordingError."""
    path = write(tmp_path)
    lines = path.with_suffix(".jsonl")
    originals = path.read_bytes(), lines.read_bytes()
    chance = random.Random(0)
    for _ in range(300):
        for file, original in zip((path, lines), originals, strict=True):
            data = bytearray(original)
            for _ in range(chance.randint(0, 4)):
                data[chance.randrange(300 if file is path else len(data))] = chance.randrange(256)
            file.write_bytes(data)
        try:
            read = Recording.open(path)
            list(read.records()), read.findings, read.session, read.end, read.shapes(0)
        except RecordingError:
            pass


def test_a_missing_directory_is_named() -> None:
    """No such directory, or one without a recording: one clear line."""
    with pytest.raises(RecordingError, match="does not exist"):
        find_recordings("/no/such/place")


def test_unreadable_directories_are_an_error_not_a_crash(tmp_path: Path) -> None:
    """An empty directory names itself."""
    with pytest.raises(RecordingError, match=os.path.basename(tmp_path)):
        find_recordings(tmp_path)


def test_names_carry_rank_node_restart_and_device(tmp_path: Path) -> None:
    """What one directory holds of many processes is told apart by name, and each goes on with its own numbers."""
    places: list[dict[str, Any]] = [
        {"rank": 3, "node": "1"},
        {"rank": 3, "node": "2", "restart": 1},
        {"rank": 3, "node": "2", "restart": 1, "lane": 1},
    ]
    writers = []
    for place in places:
        writers.append(RecordingWriter(tmp_path, place))
        for batch in range(4):
            writers[-1].record(record(writers[-1].first_batch + batch))
        writers[-1].close()
    assert [writer.first_batch for writer in writers] == [0, 4, 0]
    endings = [writer.path.stem.partition("Z")[2] for writer in writers]
    assert endings == ["-node1", "-node2-restart1", "-node2-restart1-device1"]
    assert [place_of(writer.path.name) for writer in writers] == [(3, 0), (3, 0), (3, 1)]
    assert place_of("rank3.txt") is None


def test_a_column_that_no_recording_has_is_refused(tmp_path: Path) -> None:
    """A misspelt name is answered with those that there are; one that an older recording lacks is unknown."""
    recording = Recording.open(write(tmp_path))
    with pytest.raises(ValueError, match=r"no column 'nope'; the columns are .*seconds"):
        recording.column("nope")
    recording.rows = recording.rows[["batch"]]
    assert all(value != value for value in recording.column("seconds"))


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_records_come_as_a_table(package: str, tmp_path: Path) -> None:
    """One row a batch under the columns' names; whole numbers stay whole, unknown is null, stages are names."""
    pytest.importorskip(package)
    writer = RecordingWriter(tmp_path, {"device": "cuda:0", "rank": 0})
    writer.record(record(0, epoch=2))
    writer.record(record(1, stage=Stage.VALIDATION, allocated_peak_bytes=None))
    writer.close()
    recording = Recording.open(writer.path)
    table = recording.to_pandas() if package == "pandas" else recording.to_polars()
    assert list(table["stage"]) == ["train", "validation"] and list(table["batch"]) == [0, 1]
    assert table["allocated_peak_bytes"][0] == 0 and table["epoch"][0] == 2
    nulls = table.isna() if package == "pandas" else table.select(polars_nulls(table))
    assert list(nulls["allocated_peak_bytes"]) == [False, True] and list(nulls["epoch"]) == [False, True]
    assert len(write_and_read_nothing(tmp_path / "none", package)) == 0


def polars_nulls(table: Any) -> list[Any]:
    import polars

    return [polars.col(name).is_null() for name in table.columns]


def write_and_read_nothing(folder: Path, package: str) -> Any:
    recording = Recording.open(write(folder, count=0))
    return recording.to_pandas() if package == "pandas" else recording.to_polars()
