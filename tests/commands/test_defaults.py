"""Defaults of a project, refusals before a training begins, and what was meant by a misspelt word."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from memguard.cli import main
from memguard.commands.defaults import project_defaults
from memguard.errors import MemGuardError


def test_the_nearest_file_wins(tmp_path: Path) -> None:
    """A table in pyproject.toml, or a memguard.toml of its own, in the directory or above it."""
    (tmp_path / "pyproject.toml").write_text('[tool.memguard]\ndevice = "cpu"\nlog-every = 7\n')
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert project_defaults(inner) == {"device": "cpu", "log_every": 7}
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    assert project_defaults(inner) == {"device": "cpu", "log_every": 7}
    (tmp_path / "a" / "memguard.toml").write_text('ignore = ["MG301"]\nseverity = "warning"\n')
    assert project_defaults(inner) == {"ignore": ["MG301"], "severity": "warning"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('devise = "cpu"', "did you mean 'device'"),
        ('device = "gpu"', "virtual:SIZE"),
        ('severity = "bad"', "info, warning, critical"),
        ("device =", "cannot be read"),
    ],
)
def test_a_wrong_entry_is_named_with_its_file(tmp_path: Path, text: str, says: str) -> None:
    """As an option is on the command line."""
    (tmp_path / "memguard.toml").write_text(text + "\n")
    with pytest.raises(MemGuardError, match=r"memguard\.toml") as caught:
        project_defaults(tmp_path)
    assert says in str(caught.value)


def test_a_run_takes_them_and_the_command_line_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is given wins over what the project says."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "memguard.toml").write_text('device = "virtual:64MiB"\nignore = ["nonsense"]\n')
    assert main(["run", "train.py"]) == 2
    assert "there is no rule 'nonsense'" in capsys.readouterr().err
    assert main(["run", "--ignore", "MG30", "--json", "nowhere/report.json", "train.py"]) == 2
    assert "nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--json", "nowhere/report.json", "train.py"], "nowhere/report.json cannot be written"),
        (["run", "--logdir", "train.py/runs", "train.py"], "is a file"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_first(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    """The script does not even begin."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("open('began', 'w')")
    assert main(arguments) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "began").exists()


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["reprt", "runs"], "report"),
        (["report", "runs", "--jsno"], "--json"),
        (["explain", "retaind-graph"], "retained-graph"),
    ],
)
def test_what_was_meant(arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt command, option or rule is answered with the nearest, and exit code 2."""
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = ended.code  # type: ignore[assignment]
    assert code == 2
    assert f"did you mean '{meant}'" in capsys.readouterr().err


def test_doctor_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The same facts for a program."""
    assert main(["doctor", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["version"] == 1 and "torch" in told["packages"]
    assert told["measured"] and isinstance(told["hints"], list)
