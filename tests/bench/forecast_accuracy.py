"""How far forecasts are off: a grid of training steps, forecast here and run on the real allocator of the null GPU.

    python tests/bench/forecast_accuracy.py --nullgpu PATH/TO/nullgpu --cases 180 --out benchmarks/results/forecast.md

The truth comes from a CUDA build of PyTorch whose allocator works without a GPU (or from a real GPU with --nullgpu "");
beside each forecast stand PyTorch's MemTracker and the rule of thumb of four times the parameters.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from forecast_models import Case, build

from memguard.forecast.cards import Card
from memguard.forecast.child import in_child
from memguard.forecast.fakes.without_dynamo import warm_up
from memguard.forecast.judging import judge
from memguard.forecast.kernels.workspaces import version_of
from memguard.forecast.session import trace
from memguard.forecast.setting import Setting

_MODELS = ("mlp", "resnet", "convnext", "vit", "bert", "gpt", "t5", "lstm", "unet")
_OPTIMIZERS = ("sgd", "adam", "adamw", "adamw-loop", "adamw-fused", "rmsprop", "adagrad", "adafactor")
_PRECISIONS = ("fp32", "bf16", "bf16-amp", "fp16-amp")
_BATCHES = (1, 4, 8, 32)
_OPTIONS = ("none", "checkpoint", "accumulate", "clip", "zero_first", "ema", "channels_last")
_CONFS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:128",
    "roundup_power2_divisions:4",
    "garbage_collection_threshold:0.8,per_process_memory_fraction:0.9",
)
_CHECKPOINTED = ("resnet", "convnext", "vit", "bert", "gpt", "t5")
_IMAGES = ("resnet", "convnext", "vit", "unet")
_MULTIPROCESSORS = 132
"""Of the null GPU."""


def grid(count: int) -> list[Case]:
    """Cases in which every value of every dimension comes about equally often, the same on every call."""
    draw = random.Random(7)
    columns = []
    for values in (_MODELS, _OPTIMIZERS, _PRECISIONS, _BATCHES, _OPTIONS, _CONFS, ("8.0", "9.0")):
        column = [values[index % len(values)] for index in range(count)]
        draw.shuffle(column)
        columns.append(column)
    cases = []
    for model, optimizer, precision, batch, option, conf, cc in zip(*columns, strict=True):
        if (option == "checkpoint" and model not in _CHECKPOINTED) or (
            option == "channels_last" and model not in _IMAGES
        ):
            option = "none"
        cases.append(Case(model, optimizer, precision, batch, option, conf, cc))
    cases[-1] = Case("gpt", "adamw", "fp32", 4, cc="8.0", size="124M")
    cases[-2] = Case("gpt", "adamw-fused", "bf16-amp", 4, cc="9.0", size="124M")
    cases[-3] = Case("gpt", "sgd", "fp32", 2, cc="9.0", size="355M")
    return cases


def truths(cases: list[Case], nullgpu: str, steps: int, track: int) -> dict[Case, dict[str, Any]]:
    """The real allocator's figures; one process for each allocator setting and compute capability."""
    answers: dict[Case, dict[str, Any]] = {}
    script = str(Path(__file__).with_name("forecast_truth.py"))
    for conf, cc in sorted({(case.conf, case.cc) for case in cases}):
        group = [case for case in cases if (case.conf, case.cc) == (conf, cc)]
        command = [nullgpu, "--cc", cc, "--total", "80GiB", "python", script] if nullgpu else [sys.executable, script]
        lines = [json.dumps({"case": asdict(case), "steps": steps}) for case in group]
        lines += [json.dumps({"case": asdict(case), "track": True}) for case in group if cases.index(case) < track]
        done = subprocess.run(
            command,
            input="\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            env={**os.environ, "PYTORCH_CUDA_ALLOC_CONF": conf},
            check=False,
        )
        got = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if len(got) < len(lines):
            print(done.stderr[-2000:], file=sys.stderr)
        for answer in got:
            case = Case(**answer["case"])
            if "error" in answer and "allocated" in answers.get(case, {}):
                continue  # only MemTracker failed
            answers[case] = {**answer, **answers.get(case, {})}
    return answers


def predict(case: Case, steps: int, torch_version: str) -> tuple[int, int, float]:
    """Forecast of a case: allocated and reserved peak, and the seconds of a processor it took."""
    capability = tuple(int(part) for part in case.cc.split("."))
    card = Card(
        name="null",
        title="null GPU",
        total_bytes=80 << 30,
        compute_capability=(capability[0], capability[1]),
        multiprocessors=_MULTIPROCESSORS,
        cudnn_workspaces=False,
    )
    setting = Setting(
        steps=steps,
        compute_capability=card.compute_capability,
        multiprocessors=card.multiprocessors,
        cudnn_workspaces=card.cudnn_workspaces,
        torch_version=version_of(torch_version),
    )
    started = _processor_seconds()
    traced = in_child(lambda: trace(lambda: build(case), setting))
    found = judge(traced, card=card, torch_version=torch_version, alloc_conf=case.conf)
    return found.allocated_peak_bytes, found.reserved_peak_bytes, _processor_seconds() - started


def _processor_seconds() -> float:
    """Of this process and of the children that ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def percentile(values: list[float], share: float) -> float:
    """The value below which a share of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _summary(name: str, errors: list[float]) -> str:
    if not errors:
        return f"| {name} | 0 | | | |"
    cells = [statistics.median(errors), percentile(errors, 0.95), max(errors)]
    return f"| {name} | {len(errors)} | " + " | ".join(f"{100 * value:.3f} %" for value in cells) + " |"


def main() -> int:
    """Measure, write the table, and return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nullgpu", default="", help="the command that gives a null GPU; empty: this machine's GPU")
    parser.add_argument("--cases", type=int, default=180)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--track", type=int, default=40, help="of how many cases MemTracker is asked too")
    parser.add_argument("--torch-version", default="2.15", help="the PyTorch that gives the truth")
    parser.add_argument("--out", help="where the table goes")
    parser.add_argument("--truth", help="a file that keeps the truths, read if it exists")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warm_up()
    cases = grid(given.cases)
    kept = Path(given.truth) if given.truth else None
    if kept is not None and kept.exists():
        known = [json.loads(line) for line in kept.read_text().splitlines()]
        found = {Case(**answer["case"]): answer for answer in known}
    else:
        found = truths(cases, given.nullgpu, given.steps, given.track)
        if kept is not None:
            kept.write_text("\n".join(json.dumps(answer) for answer in found.values()) + "\n")
    allocated, reserved, tracker, thumb, seconds, rows = [], [], [], [], [], []
    for case in cases:
        truth = found.get(case)
        name = f"{case.model} {case.size} {case.optimizer} {case.precision} b{case.batch} {case.option} cc{case.cc}"
        name = f"{name} {case.conf}".rstrip()
        if truth is None or "allocated" not in truth:
            print(f"no truth: {name}: {truth and truth['error']}", file=sys.stderr)
            continue
        try:
            peak, held, took = predict(case, given.steps, given.torch_version)
        except Exception as error:
            print(f"no forecast: {name}: {error}", file=sys.stderr)
            allocated.append(1.0)
            reserved.append(1.0)
            continue
        errors = peak / truth["allocated"] - 1, held / truth["reserved"] - 1
        allocated.append(abs(errors[0]))
        reserved.append(abs(errors[1]))
        seconds.append(took)
        thumb.append(abs(truth["rule"] / truth["allocated"] - 1))
        if truth.get("memtracker"):
            tracker.append(abs(truth["memtracker"] / truth["allocated"] - 1))
        rows.append((max(abs(errors[0]), abs(errors[1])), name, truth, peak, held, errors))
        if abs(errors[0]) > 0.001 or abs(errors[1]) > 0.005:
            print(f"{100 * errors[0]:+8.3f} % {100 * errors[1]:+8.3f} %  {name}", file=sys.stderr, flush=True)
    text = _table(allocated, reserved, tracker, thumb, seconds, rows, given)
    if given.out:
        Path(given.out).write_text(text)
    print(text)
    goals = (
        statistics.median(allocated) <= 0.001,
        percentile(allocated, 0.95) <= 0.01,
        statistics.median(reserved) <= 0.005,
        percentile(reserved, 0.95) <= 0.03,
    )
    return 0 if all(goals) else 1


def _table(
    allocated: list[float],
    reserved: list[float],
    tracker: list[float],
    thumb: list[float],
    seconds: list[float],
    rows: list[Any],
    given: argparse.Namespace,
) -> str:
    lines = [
        "# How far forecasts are off",
        "",
        f"{len(rows)} training steps, {given.steps} steps each, forecast with torch {torch.__version__};",
        f"the truth is the allocator of a CUDA build of torch {given.torch_version} on the null GPU, without cuDNN's",
        f"workspaces. A forecast took {statistics.median(seconds):.2f} s of a processor (median),",
        f"{max(seconds):.2f} s at most, imports not counted.",
        "",
        "| peak | cases | median error | 95th percentile | largest |",
        "|---|---|---|---|---|",
        _summary("allocated", allocated),
        _summary("reserved", reserved),
        _summary("allocated, PyTorch's MemTracker", tracker),
        _summary("allocated, four times the parameters", thumb),
        "",
        "The largest errors:",
        "",
        "| case | allocated, truth | forecast | error | reserved, truth | forecast | error |",
        "|---|---|---|---|---|---|---|",
    ]
    for _, name, truth, peak, held, errors in sorted(rows, key=lambda row: -row[0])[:25]:
        cells = f"{truth['allocated']:,} | {peak:,} | {100 * errors[0]:+.3f} %"
        lines.append(f"| {name} | {cells} | {truth['reserved']:,} | {held:,} | {100 * errors[1]:+.3f} % |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
