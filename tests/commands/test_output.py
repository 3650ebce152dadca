"""What the commands write, and where they cannot."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from memguard.cli import main
from memguard.commands.output import tell, tell_data, writable
from memguard.errors import MemGuardError


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", "\\xfc\\u2603"), ("latin-1", "ü\\u2603"), ("utf-8", "ü☃")])
def test_letters_that_stdout_does_not_know_are_replaced(
    encoding: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their codes, and only those."""
    stdout = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    monkeypatch.setattr(sys, "stdout", stdout)
    tell("in ü☃/run")
    stdout.seek(0)
    assert stdout.read() == f"in {shown}/run\n"


def test_a_file_that_can_be_written_is_its_path(tmp_path: Path) -> None:
    """It is not made by the question."""
    assert writable(str(tmp_path / "new.html")) == tmp_path / "new.html"
    assert not list(tmp_path.iterdir())
    assert writable(None) is None


@pytest.mark.parametrize(("name", "reason"), [("none/page.html", "there is no directory"), (".", "it is a directory")])
def test_a_file_that_cannot_be_written_is_refused(name: str, reason: str, tmp_path: Path) -> None:
    """With its name and why."""
    with pytest.raises(MemGuardError, match=reason):
        writable(str(tmp_path / name))


@pytest.mark.parametrize(
    "command",
    [
        ["forecast", "{here}/nowhere.py:build", "--html", "{here}/none/x.html"],
        ["forecast", "{here}/nowhere.py:build", "--svg", "{here}/none/x.svg"],
        ["report", "{here}/no-run", "--html", "{here}/none/x.html"],
        ["demo", "--logdir", "{here}/file"],
    ],
)
def test_a_command_says_so_before_it_works(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit code 2: the program or the run that is not there is not even looked for."""
    (tmp_path / "file").touch()
    assert main([word.format(here=tmp_path) for word in command]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "written" in told and str(tmp_path) in told


def test_a_disk_that_fails_later_is_one_line_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the system refuses, the file is named."""

    def full(_: object) -> None:
        raise OSError(28, "No space left on device", "page.html")

    monkeypatch.setattr("memguard.commands.rules.run", full)
    assert main(["rules"]) == 2
    assert capsys.readouterr().err == "memguard: page.html: No space left on device\n"


def test_prose_is_folded_at_the_terminal_s_width_and_tables_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under its own indent; JSON is never folded, and neither is anything that goes into a file."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    prose, row = "  rank 3: " + "holds more than the others, " * 4, "train" + "   12.0 MiB" * 8
    monkeypatch.setenv("COLUMNS", "60")
    shown, file = Terminal(), io.StringIO()
    for stream in (shown, file):
        monkeypatch.setattr(sys, "stdout", stream)
        tell(f"{prose}\n{row}")
        tell_data(json.dumps({"text": "a long sentence " * 9}))
    assert file.getvalue().splitlines()[:2] == [prose, row] and len(file.getvalue().splitlines()) == 3
    lines = shown.getvalue().splitlines()
    assert lines[-2:] == file.getvalue().splitlines()[-2:]
    assert len(lines) > 4 and max(map(len, lines[:-2])) <= 60
    assert lines[0].startswith("  rank 3:") and all(line.startswith("    ") for line in lines[1:-2])
