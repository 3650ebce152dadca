"""``memguard run``: any training script, guarded and only observed, with its own output and exit code."""

from __future__ import annotations

import argparse
import json
import operator
from collections import Counter
from typing import Any

from memguard.commands.defaults import SEVERITY, project_defaults
from memguard.commands.output import check_directory, writable
from memguard.commands.parsers import add_parser

_TEXT_OPTIONS = {
    "logdir": ("DIR", "where the recording goes (default: MEMGUARD_LOGDIR, else ./memguard-runs/<time>)"),
    "device": ("DEVICE", "what to guard: auto (default), cuda:0, xpu, mps, cpu, or a virtual GPU like virtual:24GiB"),
    "validation": (
        "WHAT",
        "forwards of a validation that forgot no_grad: warn (default) reports them, guard runs them without a graph, "
        "off leaves them alone",
    ),
    "empty_cache": ("WHEN", "never (default), validation, epoch (of a Trainer), auto, or every so many batches"),
    "peaks": ("HOW", "each batch's peak: shared (default) with other readers of the counters, exclusive, or off"),
    "on_oom": ("WHAT", "an out-of-memory error: report (default) explains it, off does not"),
    "history": ("WHEN", "PyTorch's allocation history: auto (default: a few batches, on suspicion), always, or off"),
}
_FLAGS = {
    "progress": "a short memory text in progress bars (default: yes)",
    "custom_scalars": "arrange the curves in TensorBoard's Custom Scalars (default: no)",
    "loggers": "log to the Trainer's own loggers too: W&B, MLflow, CSV (default: no)",
}


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
    for name, (metavar, text) in _TEXT_OPTIONS.items():
        parser.add_argument("--" + name.replace("_", "-"), dest=name, metavar=metavar, help=text)
    for name, text in _FLAGS.items():
        flag = "--" + name.replace("_", "-")
        parser.add_argument(flag, dest=name, action=argparse.BooleanOptionalAction, default=None, help=text)
    parser.add_argument(
        "--log-every", dest="log_every", type=int, metavar="N", help="batches per TensorBoard point (default: 50)"
    )
    parser.add_argument(
        "--rules", "--select", dest="rules", metavar="CODES", help="rules to select, with commas (default: all)"
    )
    parser.add_argument("--ignore", metavar="CODES", help="rules to leave out, with commas")
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON at the end")
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
    parser.add_argument("target", metavar="SCRIPT", help="the script, or with -m the module")
    rest = parser.add_argument("arguments", metavar="ARGS", nargs=argparse.REMAINDER, help="the script's own arguments")
    rest.required = False  # argparse takes the rest for required, so that an error would ask for it
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Runs the script; returns its exit code."""
    from memguard.integrations.last_word import closing_text
    from memguard.integrations.script import run_script
    from memguard.launch import read_launch
    from memguard.options import disabled
    from memguard.records.summary import Summary
    from memguard.report.summaries import merge
    from memguard.rules import make_rules
    from memguard.sinks.console import print_text

    options = {name: getattr(given, name) for name in (*_TEXT_OPTIONS, *_FLAGS, "log_every", "rules", "ignore")}
    given_by_project = project_defaults()
    given_by_project.pop(SEVERITY, None)
    options = {**given_by_project, **{name: value for name, value in options.items() if value is not None}}
    options.setdefault("validation", "warn")
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
        print_text("memguard: this program called no model; there is nothing to report.")
    if report is not None:
        try:
            report.write_text(json.dumps({**summary.to_json(), "ranks": []}, indent=2, default=str) + "\n")
        except OSError as error:
            print_text(f"memguard: {given.json} could not be written: {error.strerror or error}")
    return code
