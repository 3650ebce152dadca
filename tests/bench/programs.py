"""What users meet first: whole runs of small trainings, plain and guarded: ``python -m tests.bench programs``.

Each training of `tests.bench.loops` runs in a process of its own: plain, under `watch` (or its Trainer's callback),
under `memguard run`, and where that has a meaning under the least hooks that record. The variants run in turns. A cost
is the median, over the turns, of the difference of processor time to the same turn's plain run; its spread is half of
the range that holds the middle half of the turns. A run tells three figures:

- start-up: everything but the loop after its first batch: memguard's imports, its guard, the first batch, the end;
- the first thousand batches, in the mean: most leak checks run in these;
- the steady batch: the mean of those after the first thousand.

From these follows what a script of ten seconds takes longer by. A batch is a turn of the program's own loop, whatever
that makes of it: two steps of a GAN, four micro-batches.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.bench.rows import Row

LOOPS = {
    "classifier": "one model, one optimizer",
    "validated": "validation between",
    "char_lm": "recurrent, carried state",
    "vae": "autoencoder, loss.item()",
    "accumulation": "four micro-batches a step",
    "closure": "LBFGS with a closure",
    "no_optimizer": "no optimizer object",
    "folds": "a new model every 200 steps",
    "two_models": "two models, two optimizers",
    "teacher": "a frozen teacher",
    "gan": "GAN, two steps a batch",
    "forward_forward": "layers that learn alone",
    "dqn": "DQN, four moves a step",
    "ppo": "PPO, roll-outs between",
    "lightning": "Lightning",
    "lightning_manual": "Lightning, manual steps",
    "hugging_face": "Hugging Face's Trainer",
    "accelerate": "Accelerate",
    "char_lm@virtual:1GiB": "recurrent, on the virtual GPU",
}
"""The trainings, and what is particular about each; behind ``@`` the device."""
QUICK = ("classifier", "accumulation", "no_optimizer", "gan", "dqn", "lightning", "lightning_manual", "accelerate")
STEPS, TURNS = 3000, 3
DEAR = {"closure", "ppo", "hugging_face", "char_lm", "lightning", "lightning_manual"}
"""Those of long batches, which make half as many."""
FIRST = 1000
WHOLE_SECONDS = 10.0
_FLOORED = {name for name in LOOPS if "lightning" not in name} - {"hugging_face", "folds", "no_optimizer"}


class Times(NamedTuple):
    """Seconds of processor time of one run: what is not the loop, a batch of the first thousand, a later one."""

    once: float
    first: float
    steady: float
    imports: float
    """What the program's imports took, which are in ``once`` only under `memguard run`: its own come before them."""


def measure(*, quick: bool = False) -> Iterator[Row]:
    """Start-up, first thousand and steady batch of each training, watched and run by memguard; quick: of some."""
    for name in QUICK if quick else LOOPS:
        yield from _rows(name, _steps(name, quick), 2 if quick else TURNS)


def _steps(name: str, quick: bool) -> int:
    return (STEPS // 2 if name.partition("@")[0] in DEAR else STEPS) // (1 if not quick or name in DEAR else 2)


def _rows(name: str, steps: int, turns: int) -> list[Row]:
    variants = ["plain", "watch", "run", *(["least"] if name in _FLOORED and turns > 2 else [])]
    times: dict[str, list[Times]] = {variant: [] for variant in variants}
    for turn in range(turns):
        shift = turn % len(variants)
        for variant in variants[shift:] + variants[:shift]:
            times[variant].append(_run(name, steps, variant))
    plain = times.pop("plain")
    bare = statistics.median(run.steady for run in plain)
    rows = [Row(f"{name}: batch", 1e6 * bare, "us")]
    for variant, runs in times.items():
        whole = [run._replace(once=run.once + run.imports) for run in plain] if variant == "run" else plain
        added = [Times(*map(float.__sub__, run, base)) for run, base in zip(runs, whole, strict=True)]
        once, first, steady, _ = (_middle(list(column)) for column in zip(*added, strict=True))
        if variant != "least":
            rows += _figure(f"{name}: {variant}, start-up", once, 1e3, "ms", 300.0)
            rows += _figure(f"{name}: {variant}, first thousand", first, 1e6, "us", 60.0)
        rows += _figure(f"{name}: {variant}, steady", steady, 1e6, "us", None)
        if variant != "least":
            more = once[0] + FIRST * first[0] + max(WHOLE_SECONDS / bare - FIRST, 0) * steady[0]
            rows.append(Row(f"{name}: {variant}, 10 s", 100 * more / WHOLE_SECONDS, "%", 5.0))
    return rows


def _figure(label: str, value: tuple[float, float], scale: float, unit: str, at_most: float | None) -> list[Row]:
    return [Row(label, scale * value[0], unit, at_most), Row(f"{label}, spread", scale * value[1], unit)]


def _middle(values: list[float]) -> tuple[float, float]:
    """The median, and half the range of the middle half."""
    quarters = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return quarters[1], (quarters[2] - quarters[0]) / 2


def _run(name: str, steps: int, variant: str) -> Times:
    device = name.partition("@")[2]
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "times.json"
        program = ["-m", "tests.bench.loops", name, str(steps), variant, str(kept)]
        if variant == "run":
            options = ["--logdir", folder, *(["--device", device] if device else [])]
            program = ["-m", "memguard", "run", *options, *program]
        environ = os.environ | {"OMP_NUM_THREADS": "1", "MEMGUARD_LOGDIR": folder}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-W", "ignore", *program], env=environ, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise RuntimeError(f"{name}, {variant}: {done.stderr[-2000:]}")
        at = {int(step): seconds for step, seconds in json.loads(kept.read_text(encoding="utf-8")).items()}
    total = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    once = total - (at[steps] - at[1]) - (at[0] if variant != "run" else 0.0)
    return Times(once, (at[FIRST] - at[1]) / (FIRST - 1), (at[steps] - at[FIRST]) / (steps - FIRST), at[0])
