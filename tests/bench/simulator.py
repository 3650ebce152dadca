"""Operations a second of the simulated caching allocator: ``python -m tests.bench.simulator``."""

from __future__ import annotations

import random
import time

from memguard.allocator import CachingAllocator, OutOfMemory

MIB = 1 << 20
TOTAL_BYTES = 24 << 30
CONFIGS = ("", "expandable_segments:True", "max_split_size_mb:128", "roundup_power2_divisions:4")
REPEATS = 5

Work = list[int]
"""Sizes to allocate; ``-1 - n`` frees the n-th oldest of what lives."""


def training(layers: int = 24, steps: int = 20) -> Work:
    """Training steps of a transformer: activations kept by the forward, freed by the backward, and temporaries."""
    hidden = [8 * MIB, 24 * MIB, 8 * MIB, 32 * MIB, 32 * MIB, 8 * MIB]
    work: Work = []
    for _ in range(steps):
        alive = 0
        for _ in range(layers):
            for nbytes in hidden:
                work += [nbytes, nbytes // 2, 4096, -1 - (alive + 1), -1 - (alive + 1)]  # kept, and two temporaries
                alive += 1
        while alive:
            work += [16 * MIB, -alive, -alive]
            alive -= 1
    return work


def mixed(count: int = 100_000) -> Work:
    """Random sizes of every class on a few hundred live blocks, freed mostly newest first."""
    rng = random.Random(1)
    work: Work = []
    alive = 0
    for _ in range(count):
        if alive and rng.random() < 0.5:
            work.append(-1 - (rng.randrange(alive) if rng.random() < 0.3 else alive - 1))
            alive -= 1
        else:
            low, high = rng.choices([(1, 4096), (1, MIB), (MIB, 12 * MIB), (MIB, 200 * MIB)], [35, 25, 30, 10])[0]
            work.append(rng.randint(low, high))
            alive += 1
    return work


def operations_per_second(work: Work, conf: str) -> float:
    """The best speed of some repeats, as others share the machine; a request that fails counts like any other."""
    speeds = []
    for _ in range(REPEATS):
        allocator = CachingAllocator(TOTAL_BYTES, conf)
        live: list[int] = []
        began = time.perf_counter()
        for operation in work:
            if operation < 0:
                allocator.free(live.pop(-1 - operation))
            else:
                try:
                    live.append(allocator.malloc(operation))
                except OutOfMemory:
                    live.append(0)
        speeds.append(len(work) / (time.perf_counter() - began))
    return max(speeds)


def measure() -> list[tuple[str, float, str]]:
    """What is measured, how much, and its unit."""
    return [
        (f"simulated allocator, {name}, {conf or 'default'}", operations_per_second(work, conf), "operations/s")
        for name, work in (("training steps", training()), ("mixed sizes", mixed()))
        for conf in CONFIGS
    ]


if __name__ == "__main__":
    for label, value, unit in measure():
        print(f"{label:70}{value:12,.0f} {unit}")
