"""`memguard explain CODE`: one rule at length."""

from __future__ import annotations

import argparse
import shutil
from typing import Any

from memguard.commands.output import tell
from memguard.commands.parsers import add_parser
from memguard.rules import ALL_RULES
from memguard.rules.explain import explain
from memguard.rules.selection import find, find_act
from memguard.text.terminal import fold


def add(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Adds the subcommand."""
    parser = add_parser(
        subparsers,
        "explain",
        "one rule at length",
        "One rule at length: what it means, why it matters, how to fix it.",
        "memguard explain MG101",
        "memguard explain retained-graph",
    )
    parser.add_argument("rule", metavar="CODE", help="a rule's code or name, like MG101 or retained-graph")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the explanation; returns the exit code.

    Raises:
        ValueError: There is no such rule.
    """
    text = str(args.rule)
    act = find_act(text)
    told = [act] if act is not None else [explain(rule) for rule in find(ALL_RULES, text)]
    tell("\n\n".join(_fold(each.text()) for each in told), safe=True)
    return 0


def _fold(text: str) -> str:
    width = min(shutil.get_terminal_size().columns, 100)
    lines: list[str] = []
    for paragraph in text.split("\n"):
        is_code = paragraph[:1] in ("", " ", "+", "-")
        lines += [paragraph] if is_code else fold(paragraph, width)
    return "\n".join(lines)
