"""``memguard demo``: a real small training with planted faults, and what memguard says of it."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from memguard.commands.parsers import add_parser
from memguard.errors import MemGuardError

DEVICE = "virtual:64MiB"


def add(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Adds the parser."""
    parser = add_parser(
        subparsers,
        "demo",
        "a small training with planted faults, in a minute",
        "Trains a small character model on a virtual GPU until its planted faults have filled it. No GPU is needed.",
        "memguard demo",
        "tensorboard --logdir memguard-runs       what it left",
    )
    parser.add_argument("--logdir", metavar="DIR", help="where it writes (default: ./memguard-runs/demo-<time>)")
    parser.add_argument("--device", default=DEVICE, help=f"the device to guard (default: {DEVICE})")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Runs the demo; returns 0 when it ended out of memory, or when all steps were made."""
    from memguard.integrations import demo_training
    from memguard.integrations.script import run_script
    from memguard.options import Options
    from memguard.report.text import render
    from memguard.text.terminal import terminal_of

    options = {"device": given.device, "log_every": 5, "validation": "guard"}
    Options.make(**options)
    logdir = Path(given.logdir or Path("memguard-runs") / time.strftime("demo-%Y%m%d-%H%M%S"))
    script = logdir / "demo_training.py"
    try:
        logdir.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(demo_training.__file__, script)
    except OSError as error:
        raise MemGuardError(
            f"nothing can be written to {logdir}: {error.strerror or error}; name another directory with --logdir"
        ) from None
    _say(f"A character model learns Python's standard library on {given.device}, with three faults planted.")
    _say(f"The program is an ordinary one: {script}")
    _say("")
    code, summaries = run_script(str(script), [], {**options, "logdir": str(logdir)}, module=False)
    out_of_memory = any("OutOfMemoryError" in (summary.ended or "") for summary in summaries)
    leaked = any((summary.oom or {}).get("cause_kind") == "leak" for summary in summaries)
    _say("")
    for summary in summaries:
        width, colours = terminal_of(sys.stderr)
        _say(render(summary, width=width, colours=colours))
    _say("")
    if out_of_memory:
        how = "as planned" if leaked else f"though not of the planted leak: {given.device} is too small for it"
        _say(f"It ran out of memory, {how}. The traceback is what PyTorch says, the rest is what memguard adds.")
    with_tab = importlib.util.find_spec("tensorboard") is not None
    _say(f"See it:       tensorboard --logdir {logdir}" if with_tab else "Curves:       pip install tensorboard")
    _say(f"Read it:      memguard report {logdir}")
    _say("Your own:     memguard run --device virtual:8GiB train.py")
    return 0 if out_of_memory else code


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
