"""``memguard completion``: what a shell needs to complete commands, options, rules and paths; made by shtab."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from memguard.commands.output import tell_data
from memguard.commands.parsers import add_parser
from memguard.errors import MemGuardError

_FILES = ("FILE", "SCRIPT", "FILE.py:FUNCTION", "ARGS", "OTHER")


def add(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Adds the parser."""
    parser = add_parser(
        subparsers,
        "completion",
        "completion for your shell",
        "Prints a script that makes your shell complete commands, options, rules and paths.",
        "memguard completion bash      into ~/.local/share/bash-completion/completions/memguard",
        "memguard completion zsh       into a file _memguard in a directory of your $fpath",
    )
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "tcsh"), help="bash, zsh or tcsh")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Prints the script; returns 0.

    Raises:
        MemGuardError: shtab is not installed.
    """
    try:
        import shtab
    except ImportError:
        raise MemGuardError(
            "completion scripts are made by shtab, which is not installed: pip install 'torch-memguard[completion]'"
        ) from None
    parser = given.whole_parser()
    codes = [*_codes()]
    for action in _actions(parser):
        kind = action.metavar if isinstance(action.metavar, str) else ""
        if kind in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif kind == "DIR":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif kind in ("CODE", "CODES"):
            action.choices = codes
        elif kind.startswith("{"):
            action.choices = kind.strip("{}").split(",")
    tell_data(shtab.complete(parser, given.shell))
    return 0


def _codes() -> Iterator[str]:
    from memguard.rules import ALL_RULES
    from memguard.rules.explain import explanations

    for each in explanations(ALL_RULES):
        yield from (each.code, each.name)


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All arguments and options, of all commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action
