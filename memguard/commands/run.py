"""``memguard run``: any training script, guarded and only observed, with its own output and exit code."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

_TEXT_OPTIONS = {
    "logdir": "where the recording goes",
    "device": "auto, cuda:0, xpu, mps, cpu or virtual:24GiB",
    "validation": "guard, warn or off; only warn by default: a script run from outside is observed, never changed",
    "empty_cache": "never, validation, epoch, auto, or a number of batches",
    "peaks": "shared, exclusive or off",
    "on_oom": "report or off",
    "history": "off, auto or always",
}


def add(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Adds the parser."""
    parser = subparsers.add_parser(
        "run",
        help="run a training script, guarded",
        description="Runs a script as Python would and guards its training. What memguard says goes to stderr.",
        usage="memguard run [options] SCRIPT [ARGS...] | -m MODULE [ARGS...]",
        allow_abbrev=False,
    )
    for name, text in _TEXT_OPTIONS.items():
        parser.add_argument("--" + name.replace("_", "-"), dest=name, help=text)
    parser.add_argument("--log-every", dest="log_every", type=int, help="batches per TensorBoard point")
    parser.add_argument("--rules", "--select", dest="rules", help="rule codes or names, with commas, to select")
    parser.add_argument("--ignore", help="rule codes or names, with commas, to leave out")
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON at the end")
    parser.add_argument("-m", dest="module", action="store_true", help="the target is a module")
    parser.add_argument("target", metavar="SCRIPT", help="the script, or the module after -m")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Runs the script; returns its exit code."""
    from memguard.detectors import make_detectors
    from memguard.integrations.closing import closing_text
    from memguard.integrations.script import run_script
    from memguard.launch import read_launch
    from memguard.report.summaries import merge
    from memguard.summary import Summary

    options = {name: getattr(given, name) for name in (*_TEXT_OPTIONS, "log_every", "rules", "ignore")}
    options = {name: value for name, value in options.items() if value is not None}
    options.setdefault("validation", "warn")
    for name in ("rules", "ignore"):
        if name in options:
            options[name] = [part.strip() for part in options[name].split(",") if part.strip()]
    if str(options.get("empty_cache", "")).isdigit():
        options["empty_cache"] = int(options["empty_cache"])
    make_detectors(rules=options.get("rules"), ignore=options.get("ignore", ()))
    code, summaries = run_script(given.target, given.arguments, options, module=given.module)
    launch = read_launch()
    if launch.rank:
        return code  # rank 0 speaks for all; `memguard report` reads every rank's recording
    ran = [summary for summary in summaries if summary.batches]
    summary = merge(ran) if ran else summaries[-1] if summaries else Summary()
    if summaries:
        print(closing_text(launch, summary), file=sys.stderr)
    else:
        print("memguard: this program called no model; there is nothing to report.", file=sys.stderr)
    if given.json:
        try:
            Path(given.json).write_text(json.dumps({**summary.to_json(), "ranks": []}, indent=2, default=str) + "\n")
        except OSError as error:
            print(f"memguard: {given.json} could not be written: {error.strerror or error}", file=sys.stderr)
    return code
