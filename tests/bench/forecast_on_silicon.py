"""Forecasts of libraries' models beside what a GPU took, as `tests/gpu/record.py` recorded it.

    python tests/bench/forecast_on_silicon.py --truth FOLDER --out benchmarks/results/forecast-gpu.md

The models are torchvision's, timm's and transformers', with cuDNN's convolutions and attention as they come.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

import library_models
from forecast_accuracy import percentile

from memguard.errors import MemGuardError
from memguard.forecast import Forecast, forecast_of

STEPS = 3
_ROOT = f"{Path(__file__).resolve().parents[2]}/"
CARDS = {"NVIDIA H100 80GB HBM3": "nvidia-h100", "NVIDIA H200": "nvidia-h200"}


def main() -> int:
    """Compare, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--truth", type=Path, required=True, help="the folder that the recording made")
    parser.add_argument("--only", default="", help="models whose name holds this text")
    parser.add_argument("--out", type=Path, help="where the table goes")
    given = parser.parse_args()
    torch.set_num_threads(1)
    card: dict[str, Any] = json.loads((given.truth / "card.json").read_text())
    rows, refused = [], []
    for truth in _lines(given.truth / "library.jsonl.gz"):
        name = truth["name"]
        if given.only not in name or "error" in truth:
            continue
        build = library_models.programs()[name]
        try:
            found = forecast_of(
                lambda _, build=build: build(),
                device=CARDS[card["gpu"]],
                steps=STEPS,
                torch_version=card["torch"],
                suggest=False,
            )
        except MemGuardError as error:  # said, not hidden
            refused.append(f"{name}: {str(error).splitlines()[0].replace(_ROOT, '')}")
            print(refused[-1], file=sys.stderr, flush=True)
            continue
        rows.append(_row(name, truth, found))
        print(_cells(rows[-1]), file=sys.stderr, flush=True)
    text = _table(rows, card, refused)
    if given.out:
        given.out.write_text(text)
    print(text)
    return 0


def _lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def _row(name: str, truth: dict[str, Any], found: Forecast) -> dict[str, Any]:
    low, high = found.allocated_peak_bytes_range
    least, most = found.reserved_peak_bytes_range
    return {
        "name": name,
        "allocated": truth["allocated"],
        "reserved": truth["reserved"],
        "allocated_error": found.allocated_peak_bytes / truth["allocated"] - 1,
        "reserved_error": found.reserved_peak_bytes / truth["reserved"] - 1,
        "in_range": low <= truth["allocated"] <= high and least <= truth["reserved"] <= most,
        "width": max(high / low, most / least) - 1,
    }


def _cells(row: dict[str, Any]) -> str:
    errors = f"{row['allocated']:,} | {100 * row['allocated_error']:+.3f} % | {row['reserved']:,}"
    errors += f" | {100 * row['reserved_error']:+.3f} % | {'yes' if row['in_range'] else 'no'}"
    return f"| {row['name']} | {errors} | {100 * row['width']:.0f} % |"


def _table(rows: list[dict[str, Any]], card: dict[str, Any], refused: list[str]) -> str:
    lines = [
        "# Forecasts beside a real GPU",
        "",
        f"{card['gpu']}, driver {card['driver']}, torch {card['torch']}, cuDNN {card['cudnn']};",
        f"the forecasts with torch {torch.__version__}. Three steps each, the peaks over all of them.",
        "",
        "| peak | models | median error | 95th percentile | largest |",
        "|---|---|---|---|---|",
    ]
    for peak in ("allocated", "reserved"):
        errors = [abs(row[f"{peak}_error"]) for row in rows]
        cells = (statistics.median(errors), percentile(errors, 0.95), max(errors))
        lines.append(f"| {peak} | {len(rows)} | " + " | ".join(f"{100 * value:.3f} %" for value in cells) + " |")
    inside = sum(row["in_range"] for row in rows)
    lines += [
        "",
        f"Both peaks inside the forecast's range: {inside} of {len(rows)}.",
        "",
        "| model | allocated, truth | error | reserved, truth | error | in range | width of the range |",
        "|---|---|---|---|---|---|---|",
        *map(_cells, sorted(rows, key=lambda row: -abs(row["reserved_error"]))),
    ]
    if refused:
        lines += ["", "Not forecast:", "", *(f"- {reason}" for reason in refused)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
