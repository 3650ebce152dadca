"""Whether the largest batch that a forecast names is the largest that runs: found on the null GPU by bisection.

    python tests/bench/forecast_batches.py --nullgpu PATH/TO/nullgpu --out benchmarks/results/forecast-batches.md

Each case has a GPU of its own size. The truth runs three steps of every batch it tries in a fresh process; the forecast
says the largest that runs at all, the largest that runs without a flush of the allocator's cache, and the largest that
leaves a margin of the GPU free, which must never be above the truth.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from forecast_models import Case, build

from memguard.forecast.cards import Card
from memguard.forecast.fakes.without_dynamo import warm_up
from memguard.forecast.study import MARGIN, Question, Study

_STEPS = 3
_MULTIPROCESSORS = 132
CASES = (
    (Case("mlp", "adamw", "fp32", 512, cc="9.0"), 256),
    (Case("mlp", "sgd", "bf16-amp", 1024, cc="8.0"), 192),
    (Case("mlp", "adamw-fused", "fp16-amp", 1024, option="clip", cc="8.0"), 224),
    (Case("resnet", "sgd", "fp32", 8, cc="8.0"), 384),
    (Case("resnet", "adamw", "bf16-amp", 8, cc="9.0"), 512),
    (Case("resnet", "adam", "fp16-amp", 8, option="channels_last", cc="8.0"), 448),
    (Case("resnet", "sgd", "fp32", 8, option="checkpoint", conf="expandable_segments:True", cc="9.0"), 384),
    (Case("convnext", "adamw", "fp32", 4, cc="8.0"), 320),
    (Case("convnext", "adamw-fused", "bf16-amp", 4, cc="9.0"), 320),
    (Case("vit", "adamw", "fp32", 8, cc="8.0"), 320),
    (Case("vit", "adamw", "bf16-amp", 8, option="checkpoint", cc="9.0"), 256),
    (Case("vit", "rmsprop", "bf16", 8, cc="8.0"), 192),
    (Case("bert", "adamw", "fp32", 4, cc="8.0"), 320),
    (Case("bert", "adam", "bf16-amp", 4, option="ema", cc="9.0"), 384),
    (Case("gpt", "adamw", "fp32", 2, cc="8.0"), 384),
    (Case("gpt", "adamw-fused", "bf16-amp", 2, cc="9.0"), 384),
    (Case("gpt", "adamw", "bf16-amp", 2, option="checkpoint", cc="8.0"), 256),
    (Case("gpt", "adagrad", "fp32", 2, option="accumulate", cc="8.0"), 320),
    (Case("gpt", "sgd", "fp16-amp", 2, conf="expandable_segments:True", cc="9.0"), 320),
    (Case("t5", "adafactor", "fp32", 4, cc="8.0"), 320),
    (Case("t5", "adamw", "bf16-amp", 4, conf="max_split_size_mb:128", cc="9.0"), 384),
    (Case("lstm", "adam", "fp32", 8, cc="8.0"), 256),
    (Case("lstm", "sgd", "bf16-amp", 8, cc="9.0"), 256),
    (Case("unet", "adamw", "fp32", 4, cc="8.0"), 256),
    (Case("unet", "adam", "bf16-amp", 4, option="channels_last", cc="9.0"), 256),
)
"""A case, whose batch is where the search begins, and the GPU's MiB."""


def true_runs(case: Case, mib: int, nullgpu: str, guesses: tuple[int, int]) -> tuple[int, int]:
    """The largest batch that runs on the null GPU, and the largest that runs without retries."""
    script = str(Path(__file__).resolve())
    asked = ["--bisect", json.dumps(asdict(case)), "--guesses", json.dumps(guesses)]
    done = subprocess.run(
        [nullgpu, "--cc", case.cc, "--total", f"{mib}MiB", "python", script, *asked],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTORCH_CUDA_ALLOC_CONF": case.conf},
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    if not lines:
        raise RuntimeError(done.stderr[-2000:])
    runs, smooth = json.loads(lines[-1])
    return runs, smooth


def _bisect(case: Case, guesses: list[int]) -> tuple[int, int]:
    """In a process under the null GPU: a guess that runs while its successor does not, else doubling and halving."""
    known: dict[int, str] = {}

    def verdict(batch: int) -> str:
        if batch not in known:
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                os.write(writer, _run(replace(case, batch=batch)).encode())
                os._exit(0)
            os.close(writer)
            known[batch] = os.read(reader, 100).decode() or "died"
            os.close(reader)
            os.waitpid(child, 0)
        return known[batch]

    def largest(accepted: tuple[str, ...], guess: int) -> int:
        if (guess == 0 or verdict(guess) in accepted) and verdict(guess + 1) not in accepted:
            return guess
        low, high = 0, 1
        while verdict(high) in accepted:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if verdict(middle) in accepted else (low, middle)
        return low

    return largest(("fits", "retries"), guesses[0]), largest(("fits",), guesses[1])


def _run(case: Case) -> str:
    try:
        _, _, step = build(case)
        for _ in range(_STEPS):
            step()
    except torch.OutOfMemoryError:
        return "out of memory"
    return "retries" if torch.cuda.memory_stats()["num_alloc_retries"] else "fits"


def forecast_runs(case: Case, mib: int, torch_version: str) -> tuple[int, int, int]:
    """The forecast of the same."""
    capability = tuple(int(part) for part in case.cc.split("."))
    card = Card(
        name="null",
        title="null GPU",
        total_bytes=mib * 2**20,
        compute_capability=(capability[0], capability[1]),
        multiprocessors=_MULTIPROCESSORS,
        cudnn_workspaces=False,
    )
    study = Study(
        lambda batch: build(replace(case, batch=batch or case.batch)),
        Question(
            card=card,
            steps=_STEPS,
            batch=case.batch,
            torch_version=torch_version,
            alloc_conf=case.conf,
            reserved_by_others_bytes=0,
            takes_batch=True,
        ),
    )
    return study.largest_batches()


def main() -> int:
    """Measure, write the table, and return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nullgpu", help="the command that gives a null GPU")
    parser.add_argument("--torch-version", default="2.15", help="the PyTorch that gives the truth")
    parser.add_argument("--cases", type=int, default=len(CASES))
    parser.add_argument("--out", help="where the table goes")
    parser.add_argument("--kept", help="a file that keeps each row, read if it exists")
    parser.add_argument("--bisect", help=argparse.SUPPRESS)
    parser.add_argument("--guesses", default="[0, 0]", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.bisect:
        print(json.dumps(_bisect(Case(**json.loads(given.bisect)), json.loads(given.guesses))))
        return 0
    torch.set_num_threads(1)
    warm_up()
    kept = Path(given.kept) if given.kept else None
    rows: list[Any] = [json.loads(line) for line in kept.read_text().splitlines()] if kept and kept.exists() else []
    for case, mib in CASES[len(rows) : given.cases]:
        exact = forecast_runs(case, mib, given.torch_version)
        truth = true_runs(case, mib, given.nullgpu, exact[:2])
        name = f"{case.model} {case.optimizer} {case.precision} {case.option} cc{case.cc} {case.conf}".rstrip()
        rows.append((name, mib, truth, exact[:2], exact[2:]))
        print(rows[-1], file=sys.stderr, flush=True)
        if kept:
            with kept.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    equal = sum(row[2][0] == row[3][0] for row in rows)
    smooth = sum(row[2][1] == row[3][1] for row in rows)
    above = sum(row[4][0] > row[2][0] for row in rows)
    lines = [
        "# The largest batch",
        "",
        f"{len(rows)} training steps, each on a GPU of its own size; the truth by bisection on the null GPU (torch",
        f"{given.torch_version}; three steps of each batch in a fresh process). Equal in {equal} of {len(rows)}; the",
        f"largest without retries in {smooth}. With {100 * MARGIN:.0f} % of the GPU left free, the forecast was above",
        f"the truth in {above}.",
        "",
        "| case | GPU | largest, truth | forecast | without retries, truth | forecast | with the margin |",
        "|---|---|---|---|---|---|---|",
        *(f"| {n} | {m} MiB | {t[0]} | {e[0]} | {t[1]} | {e[1]} | {c[0]} |" for n, m, t, e, c in rows),
    ]
    text = "\n".join(lines) + "\n"
    if given.out:
        Path(given.out).write_text(text)
    print(text)
    return 0 if equal >= 0.95 * len(rows) and above == 0 else 1


if __name__ == "__main__":
    raise SystemExit(main())
