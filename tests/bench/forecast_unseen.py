"""Forecasts of programs that no part of the forecast was made for, beside the null GPU.

    python tests/bench/forecast_unseen.py --nullgpu PATH/TO/nullgpu --out benchmarks/results/forecast-unseen.md

About 560 programs of one operator each, whose allocations must be the same one by one, and 90 whole training steps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from forecast_accuracy import percentile
from unseen import catalogue

from memguard.forecast.cards import Card
from memguard.forecast.child import in_child
from memguard.forecast.fakes.without_dynamo import warm_up
from memguard.forecast.judging import run_on
from memguard.forecast.kernels.workspaces import expand, version_of, workspaces_for
from memguard.forecast.session import trace
from memguard.forecast.setting import Setting
from memguard.forecast.trace import Kind, Trace

_ROOT = f"{Path(__file__).resolve().parents[2]}/"
_CARD = Card(
    name="null",
    title="null GPU",
    total_bytes=80 << 30,
    compute_capability=(9, 0),
    multiprocessors=132,
    cudnn_workspaces=False,
)


def truths(kind: str, names: list[str], given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The real allocator's answers by name; those kept in a file are not asked for again."""
    kept = Path(given.truth, f"{kind}.jsonl") if given.truth else None
    lines = kept.read_text().splitlines() if kept is not None and kept.exists() else []
    known = {answer["name"]: answer for answer in map(json.loads, lines)}
    missing = [name for name in names if name not in known]
    if missing:
        script = str(Path(__file__).with_name("unseen_truth.py"))
        command = [given.nullgpu, "--cc", "9.0", "python", script, kind]
        done = subprocess.run(command, input="\n".join(missing), capture_output=True, text=True, check=False)
        fresh = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if len(fresh) < len(missing):
            print(done.stderr[-1500:], file=sys.stderr)
        known.update((answer["name"], answer) for answer in map(json.loads, fresh))
        if kept is not None:
            kept.write_text("\n".join([*lines, *fresh]) + "\n")
    return known


def traced(build: catalogue.Build, version: str) -> Trace:
    """The trace of a program as the null GPU runs it."""
    setting = Setting(
        steps=3,
        compute_capability=_CARD.compute_capability,
        multiprocessors=_CARD.multiprocessors,
        cudnn_workspaces=_CARD.cudnn_workspaces,
        torch_version=version_of(version),
    )
    return in_child(lambda: trace(build, setting), quiet=True)


def sizes(found: Trace, version: str) -> list[int]:
    """Allocations and frees of the third step, as the real allocator's history has them."""
    step, by_block, listed = -1, {}, []
    for event in expand(found.events, version, workspaces_for(found.compute_capability, version)):
        if event.kind == Kind.STEP:
            step = event.nbytes
        elif event.kind == Kind.ALLOC:
            by_block[event.block] = event.nbytes
        if step == 2 and event.kind in (Kind.ALLOC, Kind.FREE):
            listed.append(by_block[event.block] if event.kind == Kind.ALLOC else -by_block[event.block])
    return listed


def forecasts(
    kind: str,
    programs: dict[str, catalogue.Build],
    given: argparse.Namespace,
    tell: Callable[[Trace], dict[str, Any]],
) -> dict[str, dict[str, Any]]:
    """What the forecast says of each program, or why it says nothing; those kept in a file are not made again."""
    kept = Path(given.kept, f"{kind}.jsonl") if given.kept else None
    lines = kept.read_text().splitlines() if kept is not None and kept.exists() else []
    known = {answer["name"]: answer for answer in map(json.loads, lines)}
    for name, build in programs.items():
        if name in known:
            continue
        try:
            known[name] = {"name": name, **tell(traced(build, given.torch_version))}
        except Exception as error:  # said, not hidden
            said = str(error).splitlines()[0].replace(_ROOT, "")
            known[name] = {"name": name, "error": said[:200]}
        if kept is not None:
            with kept.open("a") as file:
                file.write(json.dumps(known[name]) + "\n")
    return known


def compare_operators(given: argparse.Namespace) -> list[str]:
    """One operator each: same allocations, or another order with the same peak, or another peak."""
    programs = {name: build for name, build in catalogue.operators().items() if given.only in name}
    found = truths("operators", list(programs), given)
    refused = [name for name in programs if "events" not in found.get(name, {})]
    programs = {name: build for name, build in programs.items() if name not in refused}
    said = forecasts("operators", programs, given, lambda trace: {"events": sizes(trace, given.torch_version)})
    same = order = 0
    rows = []
    for name in programs:
        truth, listed = found[name]["events"], said[name].get("events")
        real = max(accumulate(truth), default=0)
        if listed is None:
            rows.append((name, real, "none", said[name]["error"]))
            continue
        peak = max(accumulate(listed), default=0)
        if listed == truth:
            same += 1
        elif peak == real:
            order += 1
        else:
            rows.append((name, real, f"{peak:,}", f"{100 * (peak / max(real, 1) - 1):+.1f} %"))
        if given.verbose and listed != truth:
            print(name, "\ntruth   ", truth, "\nforecast", listed, file=sys.stderr)
    return [
        "## Single operators",
        "",
        f"{len(programs)} programs of one operator, forwards and backwards. In {same} every allocation of the third",
        f"step is the same and in the same order; in {order} the order differs and the peak does not; in {len(rows)}",
        f"the peak differs. {len(refused)} more do not run on the null GPU.",
        "",
        "| program | peak, truth | forecast | error |",
        "|---|---|---|---|",
        *(f"| {name} | {real:,} | {peak} | {error} |" for name, real, peak, error in rows),
        "",
    ]


def compare_steps(given: argparse.Namespace) -> list[str]:
    """Whole steps: errors of both peaks."""
    programs = {name: build for name, build in catalogue.steps().items() if given.only in name}
    found = truths("steps", list(programs), given)
    refused = [name for name in programs if "allocated" not in found.get(name, {})]
    programs = {name: build for name, build in programs.items() if name not in refused}

    def peaks(trace: Trace) -> dict[str, Any]:
        run = run_on(trace, _CARD, given.torch_version, "")
        return {"allocated": run.allocated_peak_bytes, "reserved": run.reserved_peak_bytes}

    said = forecasts("steps", programs, given, peaks)
    rows = []
    for name in programs:
        truth, answer = found[name], said[name]
        errors = [answer.get(peak, 0) / truth[peak] - 1 for peak in ("allocated", "reserved")]
        rows.append((name, truth["allocated"], truth["reserved"], *errors))
    reasons = [f"{name}: {said[name]['error']}" for name in programs if "error" in said[name]]
    lines = ["## Training steps", "", *_step_table(rows)]
    if reasons:
        lines += ["", "Not forecast (counted as wrong by 100 %):", "", *(f"- {reason}" for reason in reasons)]
    if refused:
        lines += ["", f"Do not run on the null GPU: {', '.join(refused)}."]
    return lines


def _step_table(rows: list[tuple[str, int, int, float, float]]) -> list[str]:
    lines = ["| peak | steps | exact | median error | 95th percentile | largest |", "|---|---|---|---|---|---|"]
    for title, column in (("allocated", 3), ("reserved", 4)):
        errors = [abs(row[column]) for row in rows] or [0.0]
        cells = (statistics.median(errors), percentile(errors, 0.95), max(errors))
        exact = sum(error == 0 for error in errors)
        lines.append(f"| {title} | {len(rows)} | {exact} | " + " | ".join(f"{100 * v:.3f} %" for v in cells) + " |")
    lines += ["", "| step | allocated, truth | error | reserved, truth | error |", "|---|---|---|---|---|"]
    for name, allocated, reserved, *errors in sorted(rows, key=lambda row: -max(abs(row[3]), abs(row[4]))):
        lines.append(f"| {name} | {allocated:,} | {100 * errors[0]:+.3f} % | {reserved:,} | {100 * errors[1]:+.3f} % |")
    return lines


def main() -> int:
    """Compare, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nullgpu", default="", help="the command that gives a null GPU")
    parser.add_argument("--torch-version", default="2.15", help="the PyTorch that gives the truth")
    parser.add_argument("--kind", choices=("operators", "steps"), help="only these")
    parser.add_argument("--only", default="", help="programs whose name holds this text")
    parser.add_argument("--verbose", action="store_true", help="print the allocations where they differ")
    parser.add_argument("--truth", help="a folder that keeps the truths, read where it has them")
    parser.add_argument("--kept", help="a folder that keeps each forecast, read where it has them")
    parser.add_argument("--out", help="where the table goes")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warm_up()
    lines = [
        "# Programs that the forecast was not made for",
        "",
        f"Forecast with torch {torch.__version__}; the truth is the allocator of a CUDA build of torch",
        f"{given.torch_version} on the null GPU (compute capability 9.0).",
        "",
    ]
    if given.kind != "operators":
        lines += [*compare_steps(given), ""]
    if given.kind != "steps":
        lines += compare_operators(given)
    text = "\n".join(lines).rstrip() + "\n"
    if given.out:
        Path(given.out).write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
