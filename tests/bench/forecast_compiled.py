"""Forecasts of compiled training steps, beside the real allocator of the null GPU.

    .nullgpu/bin/python -m tests.bench.forecast_compiled --out benchmarks/results/forecast-compiled.md

Run it with the interpreter of the null GPU's environment: then the forecast runs the same version of PyTorch's code.
The truth is Inductor's own run on the real allocator, without its kernels, which the null GPU could not run anyway.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from compiled_programs import Case, build, cases

from memguard.errors import MemGuardError
from memguard.forecast.child import in_child
from memguard.forecast.fakes.compiled import warm_up_compiler
from memguard.forecast.fakes.without_dynamo import warm_up
from memguard.forecast.judging import run_on
from memguard.forecast.kernels.workspaces import version_of
from memguard.forecast.session import trace
from memguard.forecast.setting import Setting

VERSION = "2.15.0"
"""Of the null GPU's PyTorch."""


def main() -> int:
    """Compare, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="cases whose words hold this text")
    parser.add_argument("--truth", type=Path, help="a file that keeps what was measured")
    parser.add_argument("--found", type=Path, help="a file that keeps what was forecast")
    parser.add_argument("--out", type=Path, help="where the table goes")
    given = parser.parse_args()
    chosen = [case for case in cases() if given.only in str(case)]
    found = forecasts(chosen, given.found)
    truth = truths(chosen, given.truth)
    text = table([(case, truth.get(case, {"error": "no answer"}), found[case]) for case in chosen])
    if given.out:
        given.out.write_text(text, encoding="utf-8")
    print(text)
    return 0


def truths(chosen: list[Case], kept: Path | None) -> dict[Case, dict[str, Any]]:
    """What the real allocator says."""
    known = _kept(kept)
    missing = [case for case in chosen if case not in known]
    if missing:
        script = str(Path(__file__).with_name("compiled_truth.py"))
        command = [sys.executable, "-m", "tests.nullgpu.run", "--cc", "9.0", "--", "python", script]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("\n".join(json.dumps(asdict(case)) for case in missing))
            process.stdin.close()
            for line in process.stdout:
                if line.startswith("{"):
                    answer = json.loads(line)
                    known[Case(**answer["case"])] = answer
                    _keep(kept, answer)
    return known


def forecasts(chosen: list[Case], kept: Path | None) -> dict[Case, dict[str, Any]]:
    """What memguard says of the same steps."""
    known = _kept(kept)
    warm_up()
    warm_up_compiler()
    for case in chosen:
        if case not in known:
            known[case] = forecast(case)
            _keep(kept, {"case": asdict(case), **known[case]})
    return known


def _kept(path: Path | None) -> dict[Case, dict[str, Any]]:
    lines = path.read_text().splitlines() if path is not None and path.exists() else []
    return {Case(**answer["case"]): answer for answer in map(json.loads, lines) if "error" not in answer}


def _keep(path: Path | None, answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=sys.stderr, flush=True)
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(answer) + "\n")


def forecast(case: Case) -> dict[str, Any]:
    """What memguard says of a step."""
    setting = Setting(
        steps=3,
        compute_capability=(9, 0),
        multiprocessors=132,
        cudnn_workspaces=False,
        torch_version=version_of(VERSION),
    )
    try:
        traced = in_child(lambda: trace(lambda: build(case), setting), quiet=True)
    except MemGuardError as error:
        return {"error": str(error)}
    run = run_on(traced, None, VERSION, "")
    notes = [note for note in traced.notes if "upper bound" in note]
    return {"allocated": run.allocated_peak_bytes, "reserved": run.reserved_peak_bytes, "bounds": notes}


def table(rows: list[tuple[Case, dict[str, Any], dict[str, Any]]]) -> str:
    """All rows, and the errors by what was compiled."""
    good = [(case, truth, found) for case, truth, found in rows if "error" not in truth and "error" not in found]
    groups: dict[str, list[tuple[float, ...]]] = {}
    for case, truth, found in good:
        errors = tuple(abs(found[key] / truth[key] - 1) for key in ("allocated", "reserved"))
        for name in ("all", case.how):
            groups.setdefault(name, []).append(errors)
    bounds = sum(bool(found["bounds"]) for *_, found in good)
    lines = [
        "# Forecasts of compiled steps beside the real allocator",
        "",
        "Made by `.nullgpu/bin/python -m tests.bench.forecast_compiled`: Inductor's own code without its kernels on",
        f"the null GPU's real allocator (torch {VERSION}), and the forecast with torch {torch.__version__}. Peaks of",
        "three steps, in MiB. By what is compiled: the error's median and 95th percentile.",
        "",
        f"{len(good)} of {len(rows)} rows could be compared; in {bounds} a part was counted as eager.",
        "",
        "| | rows | allocated equal | median | 95th | reserved equal | median | 95th |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, errors in groups.items():
        cells = [name, str(len(errors))]
        for column in zip(*errors, strict=True):
            ordered = sorted(column)
            high = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
            cells += [str(ordered.count(0.0)), f"{statistics.median(ordered):.2%}", f"{high:.2%}"]
        lines.append(f"| {' | '.join(cells)} |")
    heads = "| model | compiled | precision | optimizer | graphs | allocated | forecast | reserved | forecast |"
    lines += ["", heads, "|---|---|---|---|---|---|---|---|---|"]
    for case, truth, found in rows:
        reason = truth.get("error") or found.get("error")
        if reason:
            lines.append(f"| {case} | {reason} | | | | |")
            continue
        cells = [str(truth["graphs"])]
        for key in ("allocated", "reserved"):
            change = found[key] / truth[key] - 1
            cells += [f"{truth[key] / 2**20:.1f}", f"{change:+.2%}" if change else "equal"]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
