"""Forecasts beside memory that others measured and published; the data is read from a folder that is not committed.

    python -m tests.bench.forecast_published operators --data ../shared/forecast --out benchmarks/results/FILE.md
    python -m tests.bench.forecast_published trainings --data ../shared/forecast --out benchmarks/results/FILE.md

``operators`` are Liger-Kernel's own benchmarks of PyTorch (``liger/rows.csv``), peaks of allocated memory on five
GPUs. ``trainings`` are runs of the xMem project (``xmem/rows.json``, with the program that makes their models and needs
torchvision and transformers 4.51.3), NVML's figures on three GPUs; ``--answers`` keeps finished rows in a file.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import json
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from memguard.errors import MemGuardError
from memguard.forecast import forecast_of
from tests.bench.published_processes import MIB, Row, is_compiled, process, processes, size_of

NEAR_MIB = 0.1
HELD = ("distill_jsd_loss", "fused_linear_simpo_loss", "kto_loss")
"""Their processes compiled the benchmark's own loss first, and PyTorch's compiler of that time kept some tensors."""
HALVINGS = 1000
CARDS = {
    "NVIDIA A100-SXM4-80GB": "nvidia-a100-80gb",
    "NVIDIA H100 PCIe": "nvidia-h100",
    "NVIDIA H100 80GB HBM3": "nvidia-h100",
    "NVIDIA GeForce RTX 3090": "nvidia-rtx-3090",
    "NVIDIA B200": "nvidia-b200",
}
VERSIONS = (
    ("2024-12-17", "2.4"),
    ("2025-03-29", "2.5"),
    ("2025-06-23", "2.6"),
    ("2025-10-06", "2.7"),
    ("2026-03-01", "2.9"),
)
"""Until which day which PyTorch was the newest that had been out for two months; the rows do not name theirs."""


def main() -> int:
    """Compare, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("operators", "trainings"))
    parser.add_argument("--data", type=Path, required=True, help="the folder with liger/ and xmem/")
    parser.add_argument("--only", default="", help="rows whose name holds this text")
    parser.add_argument("--answers", type=Path, help="finished rows of trainings, one JSON a line; read at the start")
    parser.add_argument("--out", type=Path, help="where the table goes")
    given = parser.parse_args()
    if given.kind == "operators":
        text = operators(given.data / "liger" / "rows.csv", given.only)
    else:
        text = trainings(given.data / "xmem", given.only, given.answers)
    if given.out:
        given.out.write_text(text, encoding="utf-8")
    print(text)
    return 0


def version_at(date: str) -> str:
    """The PyTorch that a measurement of a day is taken to have had."""
    return next((version for until, version in VERSIONS if date < until), "2.11")


def operators(path: Path, only: str) -> str:
    """The tables of single operators, eager and compiled: each row beside its forecast, by kernel."""
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if only in row["kernel_name"]]
    off = {id(row): far for ones in processes(rows) for row, far in zip(ones, distances(ones), strict=True)}
    lines = [
        "# Forecasts of single operators beside published peaks",
        "",
        "Peaks of allocated memory in MiB that Liger-Kernel's benchmarks of PyTorch published, and the forecast of",
        "the same step, made by `python -m tests.bench.forecast_published operators`, after what its process had run",
        "before, whose freed blocks it takes (`tests/bench/published_processes.py`): the ends of blocks that are not",
        "split off, up to 1 MiB each, depend on that.",
        "",
    ]
    for title, compiled in (("eager", False), ("compiled", True)):
        if chosen := [row for row in rows if is_compiled(row) == compiled]:
            lines += _operators(title, chosen, off)
    return "\n".join(lines)


def _operators(title: str, chosen: Sequence[Row], off: Mapping[int, float]) -> list[str]:
    """One table."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in chosen:
        groups[row["kernel_name"], row["gpu_name"].removeprefix("NVIDIA ")].append(row)
    free = [row for row in chosen if row["kernel_name"] not in HELD]
    equal = sum(abs(off[id(row)]) <= NEAR_MIB for row in free)
    lines = [f"Of {len(free)} {title} rows {equal} are equal to {NEAR_MIB} MiB ({equal / len(free):.1%})."]
    if len(free) < len(chosen):
        lines += [
            f"The other {len(chosen) - len(free)} are of processes that had compiled something else before, of which",
            "PyTorch's compiler of that time kept an amount that cannot be known here. It must be the same at all",
            "sizes: in brackets what is equal as it is, then what is when the distance of most sizes is taken off.",
        ]
    lines += ["", "| operator | GPU | rows | equal | largest distance |", "|---|---|---|---|---|"]
    for (name, gpu), ones in sorted(groups.items()):
        kept = statistics.median_low([off[id(one)] for one in ones]) if name in HELD else 0.0
        row = max(ones, key=lambda one: abs(off[id(one)] - kept))
        far = off[id(row)] - kept
        equal = sum(abs(off[id(one)] - kept) <= NEAR_MIB for one in ones)
        largest = "" if abs(far) <= NEAR_MIB else f"{far:+.2f} of {float(row['y_value_50']):.2f} (x = {size_of(row)})"
        amounts = [f"(0) {equal}", f"{kept:+.2f} (then {largest or 0})"] if kept else [str(equal), largest]
        lines.append(f"| {name} | {gpu} | {len(ones)} | {' | '.join(amounts)} |")
    return [*lines, ""]


def distances(rows: Sequence[Row]) -> list[float]:
    """How far the forecasts of a process's rows are from what was published, in MiB."""
    try:
        found = forecast_of(
            lambda _: (None, None, process(rows)),
            device=CARDS[rows[0]["gpu_name"]],
            steps=2 * len(rows),
            torch_version=version_at(rows[0]["timestamp"]),
            suggest=False,
        )
    except MemGuardError as error:
        print(f"{rows[0]['kernel_name']}: {error}", file=sys.stderr)
        return [float("nan")] * len(rows)
    peaks = [step.allocated_peak_bytes / MIB for step in found.steps[1::2]]
    off = [peak - float(row["y_value_50"]) for row, peak in zip(rows, peaks, strict=True)]
    for row, far in zip(rows, off, strict=True):
        print(row["kernel_name"], size_of(row), row["y_value_50"], f"{far:+.3f}", file=sys.stderr, flush=True)
    return off


def trainings(folder: Path, only: str, kept: Path | None) -> str:
    """The table of trainings: error by kind of model and card, labels, ranges, seconds."""
    runner = _runner(folder / "run_rows.py")
    rows = [row for row in json.loads((folder / "rows.json").read_text())["developers"] if only in row["id"]]
    answers: dict[str, dict[str, Any]] = {}
    if kept is not None and kept.exists():
        answers = {one["id"]: one for one in map(json.loads, kept.read_text().splitlines())}
    known: dict[tuple[Any, ...], str] = {_what(row): row["id"] for row in rows if row["id"] in answers}
    for row in rows:
        if row["id"] not in answers:
            alike = known.get(_what(row))
            answer = {**answers[alike], "id": row["id"]} if alike else runner.forecast_row(row, 3, 180)
            answers[row["id"]] = answer
            known[_what(row)] = row["id"]
            print(row["id"], answer.get("error") or answer["verdict"], file=sys.stderr, flush=True)
            if kept is not None:
                with kept.open("a") as file:
                    file.write(json.dumps(answer) + "\n")
    good = [
        (row, answers[row["id"]], runner.errors_of(row, answers[row["id"]], 0))
        for row in rows
        if "error" not in answers[row["id"]]
    ]
    seconds = statistics.median(answer["seconds"] for _, answer, _ in good)
    lines = [
        "# Forecasts of whole trainings beside published measurements",
        "",
        "Runs that the xMem project measured (torch 2.6, fp32; the GPU's used memory by NVML), and the forecast of the",
        "same training, made by `python -m tests.bench.forecast_published trainings`. Error: of reserved memory, in",
        "runs that fitted. Label: whether the run went out of memory.",
        "",
        f"{len(good)} of {len(rows)} rows were forecast, in {seconds:.1f} seconds each at the median.",
        "",
        *_of_halves("all runs", [one for one in good if not one[0]["oom"]]),
        *_of_halves(
            "convolutional networks", [one for one in good if not one[0]["oom"] and _convolves(runner, one[0])]
        ),
        "",
        "| | runs | median error | 90th percentile | largest | xMem's median | inside the range | wrong labels |",
        "|---|---|---|---|---|---|---|---|",
        _line("all", good),
    ]
    for title, part in (
        ("", lambda row: runner.kind_of(row)),
        ("", lambda row: row["gpu"]),
        ("", lambda row: row["model"].rsplit("/", 1)[-1]),
    ):
        groups: dict[str, list[Any]] = defaultdict(list)
        for one in good:
            groups[part(one[0])].append(one)
        lines += [_line(title + name, ones) for name, ones in sorted(groups.items())]
    return "\n".join(lines) + "\n"


def _convolves(runner: ModuleType, row: dict[str, Any]) -> bool:
    return bool(runner.kind_of(row) == "convolutional networks")


def _of_halves(name: str, ones: Sequence[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]) -> list[str]:
    """How the median error differs between random halves of the runs: whether it hangs on single ones."""
    far = [abs(errors["signed"]) for _, _, errors in ones]
    if len(far) < 4:
        return []
    whole, chance = statistics.median(far), random.Random(0)
    found = []
    for _ in range(HALVINGS):
        chance.shuffle(far)
        half = len(far) // 2
        found.append((statistics.median(far[:half]), statistics.median(far[half:])))
    ordered = sorted(median for pair in found for median in pair)
    alike = sum(all(abs(median / whole - 1) <= 1 / 3 for median in pair) for pair in found) / HALVINGS
    return [
        f"{name}: in {HALVINGS} random halvings nine in ten medians are between {_quantile(ordered, 0.05):.2%}",
        f"and {_quantile(ordered, 0.95):.2%}; in {alike:.0%} both halves are within a third of the whole.",
    ]


def _what(row: dict[str, Any]) -> tuple[Any, ...]:
    """All that a forecast depends on: some configurations were measured twice."""
    names = ("model", "optimizer", "batch", "gpu", "zero_grad_position", "tokens")
    return tuple(row.get(name) for name in names)


def _line(name: str, ones: Sequence[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]) -> str:
    fitted = [(row, errors) for row, _, errors in ones if not row["oom"]]
    wrong = sum(not errors["right_label"] for _, _, errors in ones)
    labels = f"{wrong} of {len(ones)}"
    if not fitted:
        return f"| {name} | 0 | | | | | | {labels} |"
    far = sorted(abs(errors["signed"]) for _, errors in fitted)
    theirs = [abs(row["xmem_bytes"] / row["truth_bytes"] - 1) for row, _ in fitted if (row.get("xmem_bytes") or 0) > 0]
    inside = sum(errors["in_range"] for _, errors in fitted)
    return (
        f"| {name} | {len(far)} | {statistics.median(far):.2%} | {_quantile(far, 0.9):.2%} | {far[-1]:.2%} "
        f"| {f'{statistics.median(theirs):.2%}' if theirs else ''} | {inside} of {len(far)} | {labels} |"
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _runner(path: Path) -> ModuleType:
    """The program beside the rows."""
    spec = importlib.util.spec_from_file_location("run_rows", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
