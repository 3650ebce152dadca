"""``memguard check``: memory as a test. Fails where a training step does not fit or keeps memory."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import Any

from memguard.commands.output import tell, tell_data
from memguard.commands.parsers import add_parser
from memguard.errors import MemGuardError
from memguard.records.stats import Stage
from memguard.records.summary import Peak, StageSummary, Summary
from memguard.report.baseline import BaselineFile
from memguard.report.conditions import Condition
from memguard.text.units import format_bytes

_STEPS = 4
"""Forecast steps: the first makes the optimizer's states, three more show whether each keeps more than the last."""


def add(subparsers: argparse._SubParsersAction[Any]) -> None:
    """Adds the parser."""
    parser = add_parser(
        subparsers,
        "check",
        "memory as a test: does a training step stay within its budget?",
        "Forecasts a training step without a GPU; exit code 1 where it does not fit, or memory grows with every step.",
        "memguard check train.py:make --budget 20GiB",
        "memguard check train.py:make --budget 20GiB --write-baseline memory-baseline.json",
        "memguard check train.py:make --budget 20GiB --baseline memory-baseline.json --tolerance 3%",
    )
    parser.add_argument(
        "target",
        metavar="FILE.py:FUNCTION",
        help="a function without arguments that returns (model, optimizer, step), or a LightningModule",
    )
    parser.add_argument(
        "--budget",
        required=True,
        metavar="SIZE",
        help="what the process may take of the GPU, like 20GiB, or a card like nvidia-h200",
    )
    parser.add_argument("--batch", type=int, metavar="N", help="the step's batch size")
    parser.add_argument("--baseline", metavar="FILE", help="also fail where the peak is above what this file says")
    parser.add_argument("--tolerance", default="0%", metavar="X%", help="by how much it may be above (default: 0%%)")
    parser.add_argument("--write-baseline", metavar="FILE", help="keep the peak for --baseline")
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Checks, and returns 0 where all is well, else 1."""
    from memguard.commands.output import writable
    from memguard.forecast.from_file import forecast_target

    kept = writable(given.write_baseline)
    condition = Condition.parse(f"peak>+{given.tolerance}")
    if not condition.is_share:
        raise MemGuardError(f"--tolerance {given.tolerance!r} is no share; write it like 3%")
    known = _known(given.baseline, given.target) if given.baseline else None
    found = forecast_target(given.target, device=given.budget, steps=_STEPS, batch=given.batch)
    summary = Summary(device="forecast", reserved_peak_bytes=found.reserved_peak_bytes)
    peak = Peak(allocated_bytes=found.allocated_peak_bytes, reserved_bytes=found.reserved_peak_bytes, stage=Stage.TRAIN)
    summary.stages[Stage.TRAIN] = StageSummary(batches=len(found.steps), peak=peak)
    failures = []
    if not found.fits:
        failures.append(_does_not_fit(given.budget, found))
    if growth := _growth([step.allocated_end_bytes for step in found.steps[1:]]):
        failures.append(
            f"each step keeps {format_bytes(growth)} more than the one before: something holds on to its tensors "
            "(a list of losses or outputs, a state that is not detached)"
        )
    if known is not None and (changed := condition.failure(summary, known)) is not None:
        failures.append(changed)
    if kept is not None:
        BaselineFile(kept).put(summary, _name(given.target, kept))
        print(f"memguard: wrote {given.write_baseline}", file=sys.stderr)
    if given.json:
        data = {
            "version": 1,
            "passed": not failures,
            "failures": failures,
            "budget": given.budget,
            "allocated_peak_bytes": found.allocated_peak_bytes,
            "reserved_peak_bytes": found.reserved_peak_bytes,
            "verdict": found.verdict,
        }
        tell_data(json.dumps(data, indent=2))
        return 1 if failures else 0
    peaks = f"{format_bytes(found.allocated_peak_bytes)} allocated, {format_bytes(found.reserved_peak_bytes)} reserved"
    tell(f"memguard check {given.target}: {'FAILED' if failures else 'passed'}. Peak: {peaks}; budget: {given.budget}.")
    for failure in failures:
        tell(f"  {failure}")
    if not found.fits:
        tell(f"  See what fills it: memguard forecast {given.target} --device {given.budget} --suggest")
    return 1 if failures else 0


def _known(file: str, target: str) -> Summary:
    """The target's baseline.

    Raises:
        MemGuardError: The file has none.
    """
    baselines = BaselineFile(file)
    known = baselines.get(_name(target, file))
    if known is None:
        others = ", ".join(baselines.names()) or "none"
        raise MemGuardError(f"{file} has no baseline for {target}; write it with --write-baseline. It has: {others}")
    return known


def _name(target: str, baselines: str | Path) -> str:
    """The target as its baseline is named: from the baselines' directory, wherever the command was run."""
    file, _, function = target.rpartition(":")
    try:
        inside = Path(file).resolve().relative_to(Path(baselines).resolve().parent)
    except ValueError:  # elsewhere
        return target
    return f"{inside.as_posix()}:{function}"


def _does_not_fit(budget: str, found: Any) -> str:
    line = found.peak_line
    where = f", at {line.file}:{line.line}" if line is not None and line.file else ""
    if found.out_of_memory is not None:
        return f"the step runs out of memory on {budget}{where}: {found.out_of_memory.splitlines()[0]}"
    return f"on {budget} the step {found.verdict}{where}: the allocator must empty its cache to go on"


def _growth(ends: list[int]) -> int:
    """Bytes that each step keeps more than the one before; 0 where one of them does not."""
    rises = [after - before for before, after in itertools.pairwise(ends)]
    return min(rises) if rises and min(rises) > 0 else 0
