"""`memguard rules`: every rule on one line."""

from __future__ import annotations

import argparse
import json
from typing import Any

from memguard.commands.output import tell, tell_data
from memguard.commands.parsers import add_parser
from memguard.rules import ALL_RULES
from memguard.rules.explain import explanations


def add(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Adds the subcommand."""
    parser = add_parser(
        subparsers, "rules", "the rules, one line each", "The rules, one line each; `memguard explain CODE` says more."
    )
    parser.add_argument("--json", action="store_true", help="as a JSON list with code, name and title")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the rules; returns the exit code."""
    told = explanations(ALL_RULES)
    if args.json:
        tell_data(json.dumps([{"code": e.code, "name": e.name, "title": e.title} for e in told], indent=2))
        return 0
    width = max(len(e.name) for e in told)
    for e in told:
        tell(f"{e.code}  {e.name:<{width}}  {e.title}")
    return 0
