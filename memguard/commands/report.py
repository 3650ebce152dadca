"""``memguard report``: a recording in words, as JSON or as one HTML file; two runs compared; an exit code for CI."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from memguard.commands.defaults import SEVERITY, project_defaults
from memguard.commands.output import tell, tell_data, writable
from memguard.commands.parsers import add_parser
from memguard.errors import MemGuardError
from memguard.recording.reader import Recording
from memguard.records.findings import Severity
from memguard.records.summary import Summary
from memguard.report.baseline import RUN, BaselineFile
from memguard.report.compare import compare
from memguard.report.conditions import EXAMPLES, Condition
from memguard.report.rank_text import rank_lines
from memguard.report.runs import RunOnDisk, load_run
from memguard.report.starts import page_note, start_lines
from memguard.report.text import render
from memguard.text.terminal import one_line, terminal_of

_FAIL_IF = f"exit with 1 where it holds: {EXAMPLES}; + is against --compare; may be repeated".replace("%", "%%")
_LEVELS = [severity.value for severity in Severity]


def add(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Adds the parser."""
    parser = add_parser(
        subparsers,
        "report",
        "explain a recording in words",
        "Explains a recording in words: peaks by stage, findings with their lines, how the run ended.",
        "memguard report memguard-runs                    the newest run in it",
        "memguard report RUN --html run.html              one page to share",
        "memguard report RUN --compare YESTERDAYS_RUN",
        "memguard report RUN --fail-on warning            exit code 1, for CI",
        "memguard report RUN --write-baseline base.json   to commit, and later:",
        "memguard report RUN --compare base.json --fail-if 'peak>+3%'",
    )
    parser.add_argument(
        "logdir",
        metavar="DIR",
        nargs="+",
        help="the run's directory, a path or a URL like s3://bucket/run; several, where ranks had no common disk",
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON on stdout")
    parser.add_argument("--html", metavar="FILE", help="write one self-contained HTML page")
    parser.add_argument("--fail-on", choices=_LEVELS, help="exit with 1 if a finding is at least so severe")
    parser.add_argument(
        "--compare", metavar="OTHER", help="how this run differs from another one, or from a file of --write-baseline"
    )
    parser.add_argument(
        "--fail-if",
        metavar="CONDITION",
        action="append",
        default=[],
        help=_FAIL_IF,
    )
    parser.add_argument("--write-baseline", metavar="FILE", help="keep this run's peaks and findings for --compare")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Reports, and returns 0; 1 where --fail-on says so."""
    page, kept = writable(given.html), writable(given.write_baseline)
    given.fail_on = given.fail_on or project_defaults().get(SEVERITY)
    conditions = [Condition.parse(text) for text in given.fail_if]
    found = load_run(given.logdir)
    other = _other(given.compare) if given.compare else None
    failures = [text for each in conditions if (text := each.failure(found.summary, other)) is not None]
    if page is not None:
        from memguard.report.html import write_html

        write_html((Recording.open(path) for path in found.paths), page, note=page_note(found.starts))
        print(f"memguard: wrote {given.html}", file=sys.stderr)
    if given.json:
        data = found.to_json()
        if other is not None:
            data["compare"] = compare(other, found.summary)
        if conditions:
            data["failures"] = failures
        tell_data(json.dumps(data, indent=2, default=str))
    elif page is None or other is not None:
        _print(found, other, given.compare)
    if kept is not None:
        BaselineFile(kept).put(found.summary)
        print(f"memguard: wrote {given.write_baseline}", file=sys.stderr)
    for text in failures:
        print(f"memguard: {one_line(text)}", file=sys.stderr)
    if failures:
        return 1
    worst = {finding.severity for finding in found.summary.findings}
    if found.summary.oom is not None:
        worst.add(Severity.CRITICAL)  # whatever was found before
    if given.fail_on and any(Severity(given.fail_on) <= severity for severity in worst):
        return 1
    return 0


def _other(place: str) -> Summary:
    """What the run is compared with: another run, or what a file of baselines says of one.

    Raises:
        MemGuardError: It is neither.
    """
    if not Path(place).is_file() or Path(place).suffix == ".bin":
        return load_run([place]).summary
    baselines = BaselineFile(place)
    summary = baselines.get()
    if summary is None:
        raise MemGuardError(
            f"{place} has no baseline {RUN!r}, which --write-baseline writes; it has {', '.join(baselines.names())}"
        )
    return summary


def _print(found: RunOnDisk, other: Summary | None, place: str | None) -> None:
    width, colours = terminal_of(sys.stdout)
    if other is not None:
        difference = compare(other, found.summary)
        tell("\n".join([f"Compared with {place}:", *(f"  {one_line(line)}" for line in difference["lines"]), ""]))
    tell(render(found.summary, ranks=len(found.ranks), width=width, colours=colours), safe=True)
    lines = list(map(one_line, [*start_lines(found.starts), *rank_lines(found)]))
    if lines:
        tell("\n".join(lines))
