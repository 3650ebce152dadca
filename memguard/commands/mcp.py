"""``memguard mcp``: recordings, snapshots and forecasts of a directory as tools for assistants."""

from __future__ import annotations

import argparse
from typing import Any

from memguard.commands.parsers import add_parser


def add(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Adds the parser."""
    parser = add_parser(
        subparsers,
        "mcp",
        "answer an assistant's questions about runs",
        "Serves the recordings, memory snapshots and saved forecasts below a directory over the Model Context "
        "Protocol, on stdin and stdout. The tools only read, and only in that directory. Needs: pip install "
        "'torch-memguard[mcp]'.",
        "memguard mcp memguard-runs",
        "claude mcp add memguard -- memguard mcp /data/runs",
    )
    parser.add_argument("directory", metavar="DIR", nargs="?", default=".", help="what may be read (default: .)")
    parser.add_argument(
        "--forecasts",
        action="store_true",
        help="also make forecasts of FILE.py:function in DIR, which runs that code on fake tensors (default: no)",
    )
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Serves until the client leaves, and returns 0.

    Raises:
        MemGuardError: There is no such directory, or the SDK is not installed.
    """
    from memguard.assistants.server import make_server

    make_server(given.directory, forecasts=given.forecasts).run("stdio")
    return 0
