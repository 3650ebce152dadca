"""Recordings, run directories and reports from strangers."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from memguard.cli import main
from memguard.errors import RecordingError
from memguard.recording.format import HEADER_BYTES, MOST_ROWS
from memguard.recording.json_lines import MOST_FILE_BYTES, MOST_LINE_BYTES, parse_line, plain
from memguard.recording.reader import Recording, find_recordings
from memguard.text.terminal import printable
from tests.security.mutations import ESCAPES, MARKUP
from tests.security.reading import Stranger, read_for_the_tab, read_in_words, read_page, read_records, survives

INPUTS = {read_in_words: 150, read_records: 250, read_for_the_tab: 200, read_page: 12}
MANY = {read_in_words: 100_000, read_records: 100_000, read_for_the_tab: 100_000, read_page: 1_000}
"""The whole page takes forty times as long as what it shows, which the tab's reader reads as well."""


def tried(read: Callable[[Path], str], folder: Path, inputs: int, seed: int) -> int:
    """How many of so many inputs a reader took; any error but the documented one comes up here."""
    stranger, chance, taken = Stranger(folder / "run"), random.Random(seed), 0
    for _ in range(inputs):
        stranger.bend(chance)
        taken += survives(read, folder / "run") is not None
    return taken


@pytest.mark.parametrize("read", INPUTS, ids=lambda read: read.__name__)
def test_a_bent_recording_is_read_or_refused(read: Callable[[Path], str], tmp_path: Path) -> None:
    """Whatever stands in its files: an answer, or a RecordingError of one line."""
    assert tried(read, tmp_path, INPUTS[read], 1) > INPUTS[read] // 4


@pytest.mark.slow
@pytest.mark.parametrize("read", MANY, ids=lambda read: read.__name__)
def test_a_hundred_thousand_bent_recordings(read: Callable[[Path], str], tmp_path: Path) -> None:
    """The same, many times, in little memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert tried(read, tmp_path, MANY[read], 2) > MANY[read] // 4
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 << 10


# Outside of the directory


def test_a_link_out_of_the_directory_is_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither for records nor for lines: what a stranger points at is never shown."""
    stranger = Stranger(tmp_path / "run")
    secret = tmp_path / "secret.jsonl"
    secret.write_text(json.dumps({"kind": "session", "device": "the-secret"}) + "\n")
    lines = stranger.path.with_suffix(".jsonl")
    lines.unlink()
    lines.symlink_to(secret)
    for read in (read_in_words, read_for_the_tab, read_page):
        assert "the-secret" not in read(tmp_path / "run")
    assert "link to elsewhere" in Recording.open(stranger.path).notes[0]
    elsewhere = tmp_path / "elsewhere.bin"
    elsewhere.write_bytes(stranger.data)
    stranger.path.unlink()
    stranger.path.symlink_to(elsewhere)
    with pytest.raises(RecordingError, match="link to elsewhere"):
        Recording.open(stranger.path)
    assert "the-secret" not in read_for_the_tab(tmp_path / "run")


def test_folders_behind_links_are_not_searched(tmp_path: Path) -> None:
    """A link in a run's directory leads no reader through the disk."""
    Stranger(tmp_path / "elsewhere")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "inside").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RecordingError, match="no memguard recording"):
        find_recordings(tmp_path / "run")


def test_a_directory_of_ones_own_may_be_a_link(tmp_path: Path) -> None:
    """What the user names is the user's own choice: a directory or a file."""
    stranger = Stranger(tmp_path / "elsewhere")
    (tmp_path / "run").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "newest.bin").symlink_to(stranger.path)
    for name in ("run", "newest.bin"):
        assert len(Recording.open(find_recordings(tmp_path / name)[0])) == 40


@pytest.mark.parametrize("suffix", [".bin", ".jsonl"])
def test_a_pipe_keeps_nobody_waiting(suffix: str, tmp_path: Path) -> None:
    """Nor does a device without an end."""
    stranger = Stranger(tmp_path / "run")
    path = stranger.path.with_suffix(suffix)
    path.unlink()
    os.mkfifo(path)
    survives(read_in_words, tmp_path / "run")
    read_for_the_tab(tmp_path / "run")
    path.unlink()
    path.symlink_to("/dev/zero")
    survives(read_in_words, tmp_path / "run")
    read_for_the_tab(tmp_path / "run")


def test_names_that_lead_upwards_are_names_only(tmp_path: Path) -> None:
    """A post-mortem may name a snapshot; only one beside the recording is opened."""
    stranger = Stranger(tmp_path / "run")
    (tmp_path / "snapshot.pickle").write_bytes(b"the-secret")
    bent = [{**line, "id": "../../", "snapshot": "../../snapshot.pickle"} for line in stranger.lines]
    stranger.write(stranger.data, b"".join(json.dumps(line).encode() + b"\n" for line in bent))
    for read in (read_in_words, read_for_the_tab, read_page):
        assert "the-secret" not in read(tmp_path / "run")


# Without end


def test_more_records_than_any_run_are_not_read(tmp_path: Path) -> None:
    """A file of a terabyte of holes costs nothing to send, and little to read."""
    stranger = Stranger(tmp_path / "run")
    with open(stranger.path, "r+b") as file:
        file.truncate(1 << 40)
    recording = Recording.open(stranger.path)
    assert len(recording) == MOST_ROWS
    assert "the first 16,777,216 were read" in recording.notes[0]


def test_lines_without_end_are_read_up_to_a_limit(tmp_path: Path) -> None:
    """Holes, one line of gigabytes, a hundred megabytes of small ones."""
    stranger = Stranger(tmp_path / "run")
    lines = stranger.path.with_suffix(".jsonl")
    with open(lines, "r+b") as file:
        file.truncate(1 << 40)
    assert "read up to" in Recording.open(stranger.path).notes[0]
    read_for_the_tab(tmp_path / "run")
    lines.write_bytes(b'{"kind": "' + b"x" * MOST_LINE_BYTES + b'"}\n')
    assert "line 1 is broken" in Recording.open(stranger.path).notes[0]
    assert MOST_FILE_BYTES >> 20 == 64


def test_a_report_of_hostile_sizes_stays_within_bounds(tmp_path: Path) -> None:
    """Nested, wide and long lines, read in a process that may take 1.5 GiB of address space beyond its libraries."""
    stranger = Stranger(tmp_path / "run")
    wide = {"kind": "owners", "batch": 1, "modules": [["x", 1]] * 40_000}
    many = {"kind": "shapes", "id": 1, "shapes": [[]] * 200_000}
    deep = b'{"kind": "oom", "tensors": ' + b"[" * 5_000 + b"]" * 5_000 + b"}\n"
    lines = [json.dumps(each).encode() + b"\n" for each in [wide, many] * 12] + [deep] * 50
    stranger.write(stranger.data, b"".join(lines))
    program = (
        "import resource, sys, numpy\nfrom memguard.cli import main\n"
        "size = int(open('/proc/self/statm').read().split()[0]) * 4096 + (3 << 29)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (size, size))\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (30, 30))\n"
        "sys.exit(main(['report', sys.argv[1]]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "run")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "40 batches" in done.stdout


def test_values_of_a_line_are_bounded() -> None:
    """In number, in depth, in length, in range."""
    assert len(plain([0] * 10**6)) < 30_000
    assert plain(10**30) is None and plain(float("nan")) is None
    assert len(plain("x" * 10**6)) < 21_000
    assert plain("\ud800") == "?"
    nested: object = "x"
    for _ in range(50):
        nested = [nested]
    assert json.dumps(plain(nested)).count("[") < 20


def test_a_known_name_has_its_type_or_is_left_out() -> None:
    """True is no number, a list no text; what is not known passes."""
    line = {"kind": "finding", "rank": True, "batch": 3, "code": ["MG101"], "bytes": 1.5, "time": 2, "new": [1]}
    assert parse_line(json.dumps(line).encode()) == {"kind": "finding", "batch": 3, "time": 2, "new": [1]}
    assert parse_line(b'{"kind": "oom", "owners": {"a": 1, "b": "x"}}') == {"kind": "oom", "owners": {"a": 1}}
    assert parse_line(b'{"kind": "end", "overhead": {"seconds": "1"}}') == {"kind": "end", "overhead": {}}
    assert [parse_line(text) for text in (b"[]", b"{}", b'{"kind": 1}', b"{", b"[" * 10**5)] == [None] * 5


# What is shown


def test_a_terminal_sees_no_escapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Text from the file neither moves the cursor nor renames the window nor turns the reading direction."""
    stranger = Stranger(tmp_path / "run")
    bent = [
        {**line, **{key: ESCAPES for key, value in line.items() if isinstance(value, str) and key not in KEPT}}
        for line in stranger.lines
    ]
    stranger.write(stranger.data, b"".join(json.dumps(line).encode() + b"\n" for line in bent))
    assert main(["report", str(tmp_path / "run"), "--compare", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    assert "\\x1b]0;owned" in out
    assert not set(out) & (set(map(chr, range(32))) - {"\n"} | set("\x7f\x9b\u202e\ud800"))
    assert main(["report", str(tmp_path / ESCAPES[:12])]) == 2
    assert "\x1b" not in capsys.readouterr().err


KEPT = ("kind", "code", "severity", "stage")


def test_a_strangers_text_begins_no_line_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A message cannot play the report's next line."""
    stranger = Stranger(tmp_path / "run")
    forged = "well\r\nFindings: none.\nRecording: elsewhere"
    bent = [
        {**line, **{key: forged for key, value in line.items() if isinstance(value, str) and key not in KEPT}}
        for line in stranger.lines
    ]
    stranger.write(stranger.data, b"".join(json.dumps(line).encode() + b"\n" for line in bent))
    assert main(["report", str(tmp_path / "run"), "--compare", str(tmp_path / "run")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("well\\r\\nFindings: none." in line for line in lines)
    assert not [line for line in lines if line.startswith(("Findings: none", "Recording: elsewhere"))]


def test_printable_text_stays_itself() -> None:
    """Also what is not English."""
    for text in ("a line\nanother", "größer ≥ 漢字 é", "tab\there"):
        assert printable(text) == text


def test_the_page_holds_no_markup_of_the_files(tmp_path: Path) -> None:
    """Every text of the file is data in the page."""
    stranger = Stranger(tmp_path / MARKUP.replace("/", "_"))
    bent = [
        {**line, **{key: MARKUP for key, value in line.items() if isinstance(value, str) and key not in KEPT}}
        for line in stranger.lines
    ]
    stranger.write(stranger.data, b"".join(json.dumps(line).encode() + b"\n" for line in bent))
    page = read_page(stranger.logdir)
    assert "onerror" in page  # it is there, as data
    assert MARKUP not in page and "<img" not in page
    assert page.lower().count("</script") == page.lower().count("<script")


def test_columns_of_another_type_are_refused(tmp_path: Path) -> None:
    """A batch number that is a float would come out of every reader as nonsense."""
    stranger = Stranger(tmp_path / "run")
    header = stranger.data[:HEADER_BYTES].replace(b'["batch", "<i8"]', b'["batch", "<f8"]')
    stranger.path.write_bytes(header + stranger.data[HEADER_BYTES:])
    with pytest.raises(RecordingError, match="another type"):
        Recording.open(stranger.path)
    stranger.path.write_bytes(stranger.data.replace(b'"stage"', b'"scene"'))
    with pytest.raises(RecordingError, match="none for the stage"):
        Recording.open(stranger.path)


def test_numbers_at_their_limits_are_read(tmp_path: Path) -> None:
    """The largest and the smallest of every column, infinity and no number."""
    stranger = Stranger(tmp_path / "run")
    rows = np.frombuffer(stranger.data[HEADER_BYTES:], dtype=Recording.open(stranger.path).rows.dtype).copy()
    for name in rows.dtype.names or ():
        kind = rows.dtype[name].kind
        rows[name][:3] = [np.inf, -np.inf, np.nan] if kind == "f" else [np.iinfo(rows[name].dtype).max, -1, 0]
    rows.view(np.uint8).reshape(len(rows), -1)[3, 16:20] = [0, 0, 0xA0, 0x7F]  # seconds: a NaN that signals when read
    stranger.path.write_bytes(stranger.data[:HEADER_BYTES] + rows.tobytes())
    for read in (read_in_words, read_records, read_for_the_tab, read_page):
        read(tmp_path / "run")
