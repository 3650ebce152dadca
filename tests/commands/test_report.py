import json
from pathlib import Path
from typing import Any

import pytest

from memguard.cli import main
from memguard.recording.writer import RecordingWriter
from memguard.records.findings import Severity
from memguard.records.stats import BatchRecord, Stage
from memguard.text.units import GIB, MIB
from tests.fakes import finding


def write(folder: Path, *, peaks: tuple[int, ...] = (1, 2, 1), rank: int = 0, end: bool = True, **extra: Any) -> Path:
    session = {"device": "cuda:0", "device_total_bytes": 24 * GIB, "rank": rank, "world_size": 2 if rank else 1}
    writer = RecordingWriter(folder, {**session, **extra.pop("session", {})})
    writer.line("shapes", {"id": 0, "shapes": [["x", [8, 128], "int64"]]})
    for batch, peak in enumerate(peaks):
        writer.record(
            BatchRecord(
                batch=batch, stage=Stage.TRAIN, epoch=0, index=batch, time=1e9 + batch, seconds=0.1, shapes=0,
                allocated_peak_bytes=peak * GIB, allocated_end_bytes=GIB // 2, reserved_peak_bytes=2 * peak * GIB,
                host_rss_bytes=3 * GIB, num_alloc_retries=0, num_ooms=0,
            )
        )  # fmt: skip
    for one in extra.get("findings", ()):
        writer.line("finding", one.to_json())
    if end:
        writer.line("end", {"reason": "finished", "overhead": {"seconds": 0.5, "share": 0.001}})
    writer.close()
    return writer.path


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["report", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_report_tells_peak_stages_and_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In words, with the batch and its shapes."""
    write(tmp_path)
    code, text, _ = report(capsys, str(tmp_path))
    assert code == 0
    assert "Peak: 2.00 GiB allocated of 24.0 GiB (8%), at train batch 1 (epoch 0, input x [8, 128])." in text
    assert "0.10% of the run's time" in text


def test_the_json_has_the_contracts_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The keys that scripts rely on, with their values."""
    write(tmp_path, findings=[finding(line=3, file="/a/train.py", holder="history", bytes=7, bytes_per_batch=1.5)])
    code, text, _ = report(capsys, str(tmp_path), "--json")
    data = json.loads(text)
    assert code == 0
    assert (data["version"], data["device"], data["batches"]) == (1, "cuda:0", {"train": 3})
    peak = {key: data["peak"][key] for key in ("allocated_bytes", "reserved_bytes", "stage", "batch", "input_shapes")}
    assert peak == {
        "allocated_bytes": 2 * GIB, "reserved_bytes": 4 * GIB, "stage": "train", "batch": 1,
        "input_shapes": [["x", [8, 128], "int64"]],
    }  # fmt: skip
    assert set(data["findings"][0]) >= {
        "code", "name", "severity", "message", "advice", "file", "line", "function", "holder", "stage", "epoch",
        "batch", "bytes", "bytes_per_batch", "count", "rank",
    }  # fmt: skip
    assert data["overhead"] == {"seconds": 0.5, "share": 0.001}
    assert (data["oom"], data["device_total_bytes"]) == (None, 24 * GIB)
    assert [rank["rank"] for rank in data["ranks"]] == [0]


@pytest.mark.parametrize(("level", "code"), [("info", 1), ("warning", 1), ("critical", 0)])
def test_fail_on_is_an_exit_code(level: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A finding at least that severe makes CI fail; without --fail-on findings are no failure."""
    write(tmp_path, findings=[finding(severity=Severity.WARNING)])
    assert report(capsys, str(tmp_path), "--fail-on", level)[0] == code
    assert report(capsys, str(tmp_path))[0] == 0


def test_two_runs_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What rose, what is new, what is gone."""
    write(tmp_path / "a", findings=[finding(code="MG101", line=1)])
    write(tmp_path / "b", peaks=(1, 3), findings=[finding(code="MG302", line=2)])
    _, text, _ = report(capsys, str(tmp_path / "b"), "--compare", str(tmp_path / "a"))
    assert "+1.00 GiB (+50.0%) peak allocated: 2.00 GiB -> 3.00 GiB" in text
    assert "new: MG302" in text and "gone: MG101" in text


def test_the_heaviest_of_several_ranks_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ranks beside each other; also from two directories."""
    write(tmp_path / "node0", peaks=(1, 1))
    write(tmp_path / "node1", peaks=(1, 5), rank=1)
    _, text, _ = report(capsys, str(tmp_path / "node0"), str(tmp_path / "node1"))
    assert "2 ranks: peaks from 1.00 GiB (rank 0) to 5.00 GiB; the highest is rank 1, at train batch 1" in text


def test_restarts_of_one_run_are_one_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two process starts in one directory add up, and it is said that they are two."""
    paths = [write(tmp_path), write(tmp_path, peaks=(9,))]
    data = json.loads(report(capsys, str(tmp_path), "--json")[1])
    assert data["batches"] == {"train": 4}
    assert data["peak"]["allocated_bytes"] == 9 * GIB
    sessions = data["ranks"][0]["sessions"]
    assert [(each["device"], each["batches"], each["told"]) for each in sessions] == [
        ("cuda:0", 3, True), ("cuda:0", 1, True)
    ]  # fmt: skip
    assert all(each["time"] > 1e9 for each in sessions) and data["ranks"][0]["starts"] == 2
    text = report(capsys, str(tmp_path))[1]
    assert "4 batches in 2 starts" in text and "2 starts are in this directory and are read as one run:" in text
    assert all(path.name in text for path in paths)
    alone = report(capsys, str(paths[0]))[1]
    assert "3 batches," in alone and "starts lie" not in alone


def test_starts_on_different_devices_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The newest device's are told; the others stand in the list, and are read by their path."""
    other = {"device": "virtual:128MiB", "device_total_bytes": 128 * MIB}
    write(tmp_path, session=other, peaks=(7,))
    first = write(tmp_path, findings=[finding(severity=Severity.WARNING)], peaks=(20, 20))
    newest = [write(tmp_path, session=other, peaks=(1, 1)), write(tmp_path, session=other, peaks=())]
    _, text, _ = report(capsys, str(tmp_path), "--fail-on", "warning")
    assert "memguard on virtual:128MiB: 2 batches in 2 starts, nothing to worry about" in text
    assert "4 starts are in this directory; this report covers the newest 2, on virtual:128MiB, and no other:" in text
    assert text.count("(left out)") == 2 and newest[0].name in text
    assert "cuda:0: 2 batches, 1 warning" in report(capsys, str(first))[1]


def test_the_page_says_that_it_shows_the_newest_of_several_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With each one's device and batches."""
    write(tmp_path)
    write(tmp_path, peaks=(9,))
    report(capsys, str(tmp_path), "--html", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert "2 starts are in this directory; this page shows the newest (" in page
    assert "on cuda:0, 3 batches; " in page


def test_of_several_runs_the_newest_is_told_and_the_rest_mentioned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A directory of runs never mixes them."""
    write(tmp_path / "version_0", peaks=(8,))
    write(tmp_path / "version_1", peaks=(3,))
    _, text, _ = report(capsys, str(tmp_path))
    assert "Peak: 3.00 GiB" in text and "2 runs are below" in text


def test_a_run_without_a_last_word_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed from outside: batch, RAM and its limit."""
    write(tmp_path, end=False, session={"host_limit_bytes": 4 * GIB})
    _, text, _ = report(capsys, str(tmp_path))
    assert "ended without a word at batch 2 (train) with RAM at 3.00 GiB of a limit of 4.00 GiB" in text


def test_what_memguard_took_is_unknown_without_an_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is not told as nothing, in words or as JSON; one rank without an end makes that of all unknown."""
    write(tmp_path)
    write(tmp_path, rank=1, end=False)
    _, text, _ = report(capsys, str(tmp_path))
    assert "Cost of memguard: unknown" in text and "0 ms a batch" not in text
    assert json.loads(report(capsys, str(tmp_path), "--json")[1])["overhead"] == {"seconds": None, "share": None}


def test_a_torn_recording_is_read_up_to_the_break(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And says so."""
    path = write(tmp_path)
    path.write_bytes(path.read_bytes()[:-60])
    _, text, _ = report(capsys, str(tmp_path))
    assert "2 batches" in text and "torn" in text


def test_a_spike_of_one_batch_in_20000_is_the_peak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No sampling anywhere."""
    peaks = [1] * 20_000
    peaks[12_345] = 20
    write(tmp_path, peaks=tuple(peaks))
    _, text, _ = report(capsys, str(tmp_path))
    assert "Peak: 20.0 GiB" in text and "train batch 12345" in text


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(("/no/such/place",), "/no/such/place"), ((".", "--fail-on", "fatal"), "fatal")],
)
def test_bad_input_is_one_clear_line_and_exit_2(
    arguments: tuple[str, ...], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The value stands in the error; nothing on stdout."""
    try:
        code = main(["report", *arguments])
    except SystemExit as leave:
        code = leave.code  # type: ignore[assignment]
    printed = capsys.readouterr()
    assert code == 2 and printed.out == ""
    assert word in printed.err and "Traceback" not in printed.err


def test_sizes_in_the_text_are_binary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """GiB and MiB, never GB."""
    write(tmp_path)
    text = report(capsys, str(tmp_path))[1]
    assert "GiB" in text and " GB" not in text
    assert MIB * 1024 == GIB


def test_a_baseline_file_is_written_and_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run's baseline fits in git; a later run fails where a condition holds, in words and in JSON."""
    base = str(tmp_path / "base.json")
    write(tmp_path / "old")
    write(tmp_path / "new", peaks=(1, 3))
    assert report(capsys, str(tmp_path / "old"), "--write-baseline", base)[0] == 0
    assert report(capsys, str(tmp_path / "old"), "--compare", base, "--fail-if", "peak>+0%")[0] == 0
    code, text, err = report(capsys, str(tmp_path / "new"), "--compare", base, "--fail-if", "peak>+3%")
    assert code == 1
    assert f"Compared with {base}:" in text
    assert "the baseline has 2.00 GiB, +50.0%" in err
    code, text, _ = report(capsys, str(tmp_path / "new"), "--compare", base, "--fail-if", "peak>+60%", "--json")
    assert (code, json.loads(text)["failures"]) == (0, [])
    assert report(capsys, str(tmp_path / "new"), "--fail-if", "peak>+3%")[0] == 2
    assert report(capsys, str(tmp_path / "new"), "--fail-if", "speed>3")[0] == 2
