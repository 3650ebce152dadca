"""`memguard explain CODE`: one rule at length."""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from typing import Any

from memguard.commands.output import tell
from memguard.commands.parsers import add_parser
from memguard.detectors import DETECTORS
from memguard.detectors.explain import explain
from memguard.detectors.select import ACTS, find, is_act

_ACTS = {
    "MG001": "memguard ran a forward in eval mode without an autograd graph, because nobody uses it. Put the forward "
    'under `with memguard.allow("grad"):` if gradients are wanted there, or pass validation="warn".',
    "MG002": "memguard gave cached memory back to the driver, as the option empty_cache asks.",
    "MG003": "A part of memguard failed and was switched off; the training is not touched.",
}


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
    """Prints the explanation; returns the exit code, 2 where there is no such rule."""
    text = str(args.rule)
    if is_act(text):
        code = next(code for code, name in ACTS.items() if text.upper() == code or text.lower() == name)
        tell(_fold(f"{code} {ACTS[code]}\n{_ACTS[code]}"))
        return 0
    try:
        rules = find(DETECTORS, text)
    except ValueError as error:
        print(f"memguard: {error}", file=sys.stderr)
        return 2
    tell("\n\n".join(_fold(explain(rule).text()) for rule in rules))
    return 0


def _fold(text: str) -> str:
    width = min(shutil.get_terminal_size().columns, 100)
    return "\n".join(
        textwrap.fill(line, width, break_on_hyphens=False, break_long_words=False) for line in text.split("\n")
    )
