"""``memguard run``: any training script, guarded and only observed, with its own output and exit code."""

from __future__ import annotations

import argparse
import json
import operator
from collections import Counter
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from memguard.commands.defaults import SEVERITY, project_defaults
from memguard.commands.output import check_directory, writable
from memguard.commands.parsers import add_parser
from memguard.options import Options, OptionValues, meanings

_METAVARS = {
    "logdir": "DIR",
    "device": "DEVICE",
    "empty_cache": "WHEN",
    "log_every": "N",
    "export": "{otlp,prometheus}",
}
_DEFAULTS: dict[str, Any] = {"validation": "warn"}
"""Where the command differs from the function: a script run from outside is observed, never changed unless asked."""


def add(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Adds the parser."""
    parser = add_parser(
        subparsers,
        "run",
        "run a training script, guarded",
        "Runs a script as Python would and guards its training. The script's output and exit code stay its own; what "
        "memguard says goes to stderr. A script is observed, never changed, unless --validation guard asks for it.",
        "memguard run train.py --lr 1e-3",
        "memguard run --device virtual:8GiB train.py      would it fit 8 GiB?",
        "memguard run --ignore MG201,MG301 -m package.train",
        "torchrun --nproc-per-node 4 -m memguard run train.py",
        usage="memguard run [options] SCRIPT [ARGS...] | -m MODULE [ARGS...]",
    )
    _add_options(parser)
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON at the end")
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
    parser.add_argument("target", metavar="SCRIPT", help="the script, or with -m the module")
    rest = parser.add_argument("arguments", metavar="ARGS", nargs=argparse.REMAINDER, help="the script's own arguments")
    rest.required = False  # argparse takes the rest for required, so that an error would ask for it
    parser.set_defaults(run=run)


def _add_options(parser: argparse.ArgumentParser) -> None:
    """Adds each option of `Options`, with its meaning, its values and its default there."""
    types, texts = get_type_hints(OptionValues), meanings()
    for field in fields(Options):
        name, default = field.name, _DEFAULTS.get(field.name, field.default)
        shown = {True: "yes", False: "no"}.get(default, default) if isinstance(default, bool) else default
        told = "" if default in (None, ()) else f" (default: {shown})"
        text = (texts.get(name, "").replace("`", "").rstrip(".") + told).replace("%", "%%")
        flags, kind = ["--" + name.replace("_", "-")], types[name]
        extra: dict[str, Any] = {"metavar": _METAVARS.get(name)}
        if kind is bool:
            extra = {"action": argparse.BooleanOptionalAction}
        elif kind is int:
            extra["type"] = int
        elif get_origin(kind) is Literal:
            extra["metavar"] = "{" + ",".join(get_args(kind)) + "}"  # `Options` refuses others, in one line
        elif name in ("rules", "ignore"):
            flags, extra["metavar"] = flags + ["--select"] * (name == "rules"), "CODES"
        parser.add_argument(*flags, dest=name, default=None, help=text, **extra)


def run(given: argparse.Namespace) -> int:
    """Runs the script; returns its exit code."""
    from memguard.loading import load

    load("memguard.integrations.script")
    from memguard.integrations.last_word import closing_text
    from memguard.integrations.script import run_script
    from memguard.launch import read_launch
    from memguard.options import disabled
    from memguard.records.summary import Summary
    from memguard.report.summaries import merge
    from memguard.rules import make_rules
    from memguard.sinks.console import print_text

    options = {field.name: getattr(given, field.name) for field in fields(Options)}
    given_by_project = project_defaults()
    given_by_project.pop(SEVERITY, None)
    options = {**_DEFAULTS, **given_by_project, **{name: value for name, value in options.items() if value is not None}}
    for name in ("rules", "ignore"):
        if isinstance(options.get(name), str):
            options[name] = [part.strip() for part in options[name].split(",") if part.strip()]
    if str(options.get("empty_cache", "")).isdigit():
        options["empty_cache"] = int(options["empty_cache"])
    report = writable(given.json)
    report = report.absolute() if report is not None else None  # the script may change its directory
    check_directory(given.logdir)
    make_rules(rules=options.get("rules"), ignore=options.get("ignore", ()))
    code, summaries = run_script(
        given.target, given.arguments, options, module=given.module, owns_process=given.owns_process
    )
    launch = read_launch()
    if launch.rank:  # rank 0 speaks for all, unless this one is the last to end
        if summaries and (last := closing_text(launch, summaries[-1])) is not None:
            print_text(last)
        return code
    ran = sorted((summary for summary in summaries if summary.batches), key=operator.attrgetter("rank"))
    starts = Counter(summary.rank for summary in ran)
    summary = merge(ran) if ran else summaries[-1] if summaries else Summary()
    summary.starts = max(starts.values(), default=1)
    if summaries:
        print_text(closing_text(launch, summary, ranks=max(len(starts), 1)) or "")
    elif not disabled():
        print_text("memguard: this program called no model, or has a guard of its own; there is nothing to report.")
    if report is not None:
        try:
            report.write_text(json.dumps({**summary.to_json(), "ranks": []}, indent=2, default=str) + "\n")
        except OSError as error:
            print_text(f"memguard: {given.json} could not be written: {error.strerror or error}")
    return code
