"""``memguard report``: a recording in words, as JSON or as one HTML file; two runs compared; an exit code for CI."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from memguard.commands.output import tell, writable
from memguard.commands.parsers import add_parser
from memguard.findings import Severity
from memguard.printable import one_line
from memguard.recording import Recording
from memguard.report.compare import compare
from memguard.report.rank_text import rank_lines
from memguard.report.runs import RunOnDisk, load_run
from memguard.report.starts import page_note, start_lines
from memguard.report.text import render

_LEVELS = [severity.value for severity in Severity]


def add(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Adds the parser."""
    parser = add_parser(
        subparsers,
        "report",
        "what a recording tells",
        "Explains a recording in words: peaks by stage, findings with their lines, how the run ended.",
        "memguard report memguard-runs                    the newest run in it",
        "memguard report RUN --html run.html              one page to share",
        "memguard report RUN --compare YESTERDAYS_RUN",
        "memguard report RUN --fail-on warning            exit code 1, for CI",
    )
    parser.add_argument(
        "logdir", metavar="DIR", nargs="+", help="the run's directory; several, where ranks had no common disk"
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON on stdout")
    parser.add_argument("--html", metavar="FILE", help="write one self-contained HTML page")
    parser.add_argument("--fail-on", choices=_LEVELS, help="exit with 1 if a finding is at least so severe")
    parser.add_argument("--compare", metavar="OTHER", help="how this run differs from another one")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Reports, and returns 0; 1 where --fail-on says so."""
    page = writable(given.html)
    found = load_run(given.logdir)
    if page is not None:
        from memguard.report.html import write_html

        write_html((Recording.open(path) for path in found.paths), page, note=page_note(found.starts))
        print(f"memguard: wrote {given.html}", file=sys.stderr)
    if given.json:
        data = found.to_json()
        if given.compare:
            data["compare"] = compare(load_run([given.compare]).summary, found.summary)
        tell(json.dumps(data, indent=2, default=str))
    elif page is None or given.compare:
        _print(found, given.compare)
    worst = {finding.severity for finding in found.summary.findings}
    if given.fail_on and any(Severity(given.fail_on) <= severity for severity in worst):
        return 1
    return 0


def _print(found: RunOnDisk, other: str | None) -> None:
    lines = [render(found.summary, ranks=len(found.ranks))]
    lines += map(one_line, [*start_lines(found.starts), *rank_lines(found)])
    if other is not None:
        difference = compare(load_run([other]).summary, found.summary)
        lines += ["", f"Compared with {other}:", *(f"  {one_line(line)}" for line in difference["lines"])]
    tell("\n".join(lines))
