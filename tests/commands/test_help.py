from __future__ import annotations

import argparse
import re
import shlex
from dataclasses import fields

import pytest

from memguard.cli import main, make_parser
from memguard.options import Options, meanings


def commands() -> dict[str, argparse.ArgumentParser]:
    (action,) = (each for each in make_parser()._actions if isinstance(each, argparse._SubParsersAction))
    return dict(action.choices)


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """On stderr, with the exit code of a request that makes no sense."""
    assert main([]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and all(f"\n    {name} " in shown.err for name in commands())


def test_every_example_of_the_help_texts_is_a_valid_command() -> None:
    """Each line that begins with memguard parses."""
    told = [parser.epilog or "" for parser in (make_parser(), *commands().values())]
    examples = [line.strip() for text in told for line in text.splitlines() if line.startswith("  memguard ")]
    for example in examples:
        command = re.split(r"\s{2,}", example)[0]
        if "COMMAND" not in command:
            assert make_parser().parse_args(shlex.split(command)[1:]).run
    assert len(examples) > 15


def test_memguard_run_has_every_option_under_its_own_name() -> None:
    """With dashes, and without a default of its own: what is not given is left to the options."""
    given = vars(make_parser().parse_args(["run", "train.py"]))
    assert {field.name for field in fields(Options)} <= given.keys()
    assert all(given[field.name] is None for field in fields(Options))
    given = vars(make_parser().parse_args(["run", "--custom-scalars", "--no-progress", "train.py", "--loggers"]))
    assert (given["custom_scalars"], given["progress"], given["loggers"]) == (True, False, None)
    assert given["arguments"] == ["--loggers"]
    shown = " ".join(commands()["run"].format_help().split())
    assert all(text.replace("`", "").rstrip(".").split(". ")[0] in shown for text in meanings().values())


@pytest.mark.parametrize(
    ("words", "usage", "told"),
    [
        (["run"], "memguard run [options] SCRIPT", "are required: SCRIPT\n"),
        (["run", "--bogus", "train.py"], "memguard run [options] SCRIPT", "unrecognized arguments: --bogus"),
        (["report", "here", "--bogus"], "memguard report [-h]", "unrecognized arguments: --bogus"),
    ],
)
def test_a_wrong_word_shows_the_usage_of_its_command(
    words: list[str], usage: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is asked for that may be left out."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"usage: {usage}") and told in shown
