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
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

from memguard.errors import MemGuardError
from memguard.forecast import forecast_of
from tests.bench.published_processes import COMPILED, MIB, Row, in_process, same_process, size_of

Sized = tuple[int, float, float]
"""A size, its published peak and its forecast, in MiB."""
NEAR_MIB = 0.1
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
    """The table of single operators: each row beside its forecast, by kernel."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    found: dict[tuple[str, str, str], list[Sized]] = defaultdict(list)
    compiled: dict[tuple[str, str, str], list[Sized]] = defaultdict(list)
    for row in rows:
        name = row["kernel_name"]
        if only not in name:
            continue
        peak = operator_peak(row, rows)
        one = size_of(row), float(row["y_value_50"]), peak
        series = f"{row['x_name']} {row['extra_benchmark_config_str']}"
        where = compiled if row["kernel_provider"] == COMPILED else found
        where[name, row["gpu_name"].removeprefix("NVIDIA "), series].append(one)
        print(name, row["kernel_provider"], one[0], row["y_value_50"], f"{peak:.3f}", file=sys.stderr, flush=True)
    lines = [
        "# Forecasts of single operators beside published peaks",
        "",
        "Peaks of allocated memory in MiB that Liger-Kernel's benchmarks of PyTorch published, and the forecast of the",
        "same step after what its process had done before (`tests/bench/published_processes.py`), made by",
        "`python -m tests.bench.forecast_published operators`.",
        "",
    ]
    for title, groups in (("eager", found), ("compiled", compiled)):
        if groups:
            lines += _operators_of(title, groups)
    return "\n".join(lines)


def _operators_of(title: str, found: dict[tuple[str, str, str], list[Sized]]) -> list[str]:
    """Eager rows, or compiled ones."""
    every = [row for group in found.values() for row in group]
    near = sum(abs(peak - truth) <= NEAR_MIB for _, truth, peak in every)
    grown = sum(same for group in found.values() for same in differences(group))
    steps = sum(len(group) - 1 for group in found.values())
    lines = [
        f"{near} of {len(every)} {title} rows are equal to {NEAR_MIB} MiB, and in a series of sizes {grown} of {steps}",
        "differences between one size and the next: where a process held other memory, only these can be.",
        "",
        "| operator | GPU | rows | equal | differences | equal | largest distance |",
        "|---|---|---|---|---|---|---|",
    ]
    groups: dict[tuple[str, str], list[list[Sized]]] = defaultdict(list)
    for (name, gpu, _), group in found.items():
        groups[name, gpu].append(group)
    for (name, gpu), series in sorted(groups.items()):
        ones = [row for group in series for row in group]
        equal = sum(abs(peak - truth) <= NEAR_MIB for _, truth, peak in ones)
        x, truth, peak = max(ones, key=lambda one: abs(one[2] - one[1]))
        far = "" if abs(peak - truth) <= NEAR_MIB else f"{peak - truth:+.2f} of {truth:.2f} (x = {x})"
        changes = [change for group in series for change in differences(group)]
        lines.append(f"| {name} | {gpu} | {len(ones)} | {equal} | {len(changes)} | {sum(changes)} | {far} |")
    return [*lines, ""]


def differences(group: Sequence[Sized]) -> list[bool]:
    """Whether the forecast grows from each size to the next as the measurement does."""
    return [
        abs((after[2] - before[2]) - (after[1] - before[1])) <= NEAR_MIB for before, after in pairwise(sorted(group))
    ]


def operator_peak(row: Row, rows: Sequence[Row]) -> float:
    """The forecast of a row in MiB: the peak of a step after the first, in the process that made it and others."""
    process = same_process(row, rows)
    try:
        found = forecast_of(
            lambda _: (None, None, in_process(row, process)),
            device=CARDS[row["gpu_name"]],
            steps=3,
            torch_version=version_at(row["timestamp"]),
            suggest=False,
        )
    except MemGuardError as error:
        print(f"{row['kernel_name']}: {error}", file=sys.stderr)
        return float("nan")
    return found.steady_step.allocated_peak_bytes / MIB


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
