"""Synthetic series of post-step allocated bytes: what healthy runs and leaking runs look like. Units are MB."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

BATCHES = 3000
EPOCH = 500
BASE = 8_000.0
LIMIT = 24_000.0

Series = list[float]


def constant(rng: random.Random) -> Series:
    return [BASE] * BATCHES


def warm_up(rng: random.Random) -> Series:
    return [BASE * (0.5 if i < 2 else 1.0) + min(i, 20) * 10 for i in range(BATCHES)]


def lengths(rng: random.Random) -> Series:
    return [BASE + 300 * math.exp(rng.gauss(0, 0.5)) for _ in range(BATCHES)]


def sorted_lengths(rng: random.Random) -> Series:
    return [BASE + 2000 * ((i % EPOCH) / EPOCH) + rng.random() * 20 for i in range(BATCHES)]


def replay(rng: random.Random) -> Series:
    full = rng.randint(300, 1500)
    return [BASE + 2.0 * min(i, full) for i in range(BATCHES)]


def validation(rng: random.Random) -> Series:
    period = rng.randint(80, 200)
    return [BASE + 20.0 * max(0, i % period - period * 0.7) for i in range(BATCHES)]


def epoch_state(rng: random.Random) -> Series:
    return [BASE + 4.0 * (i % EPOCH) for i in range(BATCHES)]


def noise(rng: random.Random) -> Series:
    value, found = 0.0, []
    for _ in range(BATCHES):
        value = 0.97 * value + rng.gauss(0, 60)
        found.append(BASE + value)
    return found


def lazy_jumps(rng: random.Random) -> Series:
    jumps = sorted(rng.randint(0, BATCHES) for _ in range(6))
    return [BASE + 400 * sum(i >= jump for jump in jumps) for i in range(BATCHES)]


def accumulation(rng: random.Random) -> Series:
    return [BASE + 50 * (i % 8) for i in range(BATCHES)]


def saw_tooth(rng: random.Random) -> Series:
    found, until, value = [], 0, 0.0
    for i in range(BATCHES):
        if i >= until:
            until, value = i + rng.randint(20, 120), 0.0
        value += 10
        found.append(BASE + value)
    return found


def running_max(rng: random.Random) -> Series:
    top, found = 0.0, []
    for _ in range(BATCHES):
        top = max(top, 400 * math.exp(rng.gauss(0, 0.4)))
        found.append(BASE + top)
    return found


def checkpoints(rng: random.Random) -> Series:
    return [BASE + (3000 if i % 250 < 3 else 0) + rng.random() for i in range(BATCHES)]


HEALTHY: tuple[Callable[[random.Random], Series], ...] = (
    *(constant, warm_up, lengths, sorted_lengths, replay, validation, epoch_state),
    *(noise, lazy_jumps, accumulation, saw_tooth, running_max, checkpoints),
)


def leaking(
    background: Callable[[random.Random], Series], per_batch: float, start: int = 100, burst: int = 1
) -> Callable[[random.Random], Series]:
    def series(rng: random.Random) -> Series:
        return [value + per_batch * burst * (max(i - start, 0) // burst) for i, value in enumerate(background(rng))]

    return series
