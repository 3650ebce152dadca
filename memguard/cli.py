"""The ``memguard`` command: parses, hands over to the sub-command, and turns a bad request into one line and exit 2."""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
from collections.abc import Sequence

import memguard
from memguard.commands.parsers import HelpFormatter, epilog
from memguard.errors import MemGuardError
from memguard.options import did_you_mean
from memguard.text.terminal import printable

_COMMANDS = (
    "run",
    "demo",
    "report",
    "snapshot",
    "forecast",
    "check",
    "mcp",
    "rules",
    "explain",
    "doctor",
    "completion",
)
"""Modules of memguard.commands; only the one that is asked for is loaded, for some load much."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: Those after the program's name; None takes the process's own.

    Returns:
        The exit code: 0, what the command decides, or 2 for a request that makes no sense.

    Raises:
        KeyboardInterrupt: The process's own command was interrupted.
    """
    words = sys.argv[1:] if arguments is None else arguments
    one = not words or words[0] in _COMMANDS or words[0] == "--version"
    parser = make_parser([word for word in words[:1] if word in _COMMANDS] if words and one else _COMMANDS)
    if not words:
        parser.print_help(sys.stderr)
        return 2
    if not words[0].startswith("-") and words[0] not in _COMMANDS:
        near = did_you_mean(words[0], _COMMANDS)
        print(
            f"memguard: there is no command {words[0]!r}{near}; the commands are {', '.join(_COMMANDS)}",
            file=sys.stderr,
        )
        return 2
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        near = did_you_mean(unknown[0].partition("=")[0], given.parser._option_string_actions)
        given.parser.error(f"unrecognized arguments: {' '.join(unknown)}{near}")  # with the command's own usage
    given.owns_process, given.whole_parser = arguments is None, make_parser
    try:
        code = int(given.run(given))
    except BrokenPipeError:  # the reader of our output left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (MemGuardError, ValueError, TypeError, OSError) as error:
        if getattr(given, "debug", False):
            raise
        text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
        print(printable(f"memguard: {text}"), file=sys.stderr)
        return 2
    if code == -signal.SIGINT and given.owns_process:
        sys.excepthook = lambda *error: None  # its traceback is on the screen
        raise KeyboardInterrupt  # Python itself ends with the signal
    return code if code >= 0 else 128 - code


def make_parser(commands: Sequence[str] = _COMMANDS) -> argparse.ArgumentParser:
    """The parser of the whole command line, or of some commands only."""
    parser = argparse.ArgumentParser(
        prog="memguard",
        description="A guard that rides along any PyTorch training loop: records the memory of every batch, names the "
        "line that keeps memory alive, explains an out-of-memory error in words.",
        epilog=epilog(
            "memguard demo                                    see it in a minute, without a GPU",
            "memguard run train.py --lr 1e-3                  guard a script, its code unchanged",
            "memguard report memguard-runs                    what the last run left",
            "memguard forecast train.py:make --device 24GiB   will it fit?",
            "memguard COMMAND --help                          every option of a command",
        ),
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"memguard {memguard.__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in commands:
        importlib.import_module(f"memguard.commands.{command}").add(subparsers)
    return parser
