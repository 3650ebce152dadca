"""Seconds to read, explain and replay a snapshot of about 100 MB: ``python -m tests.bench.snapshot_reader``."""

from __future__ import annotations

import pickle
import random
import sys
import time
from typing import Any

from memguard.allocator.analysis import analyse
from memguard.allocator.caching import CachingAllocator
from memguard.allocator.replay import replay
from memguard.allocator.snapshot import parse_snapshot

EVENTS = 280_000
STACK_DEPTH, STACKS = 60, 400
MIB = 1 << 20


def generated(events: int) -> bytes:
    """A snapshot as PyTorch writes one after a long training: few stacks, each deep, and many events."""
    chance = random.Random(1)
    frames = [{"name": f"function_{n}", "filename": f"/home/user/module_{n % 40}.py", "line": n} for n in range(4000)]
    stacks = [chance.sample(frames, STACK_DEPTH) for _ in range(STACKS)]
    trace: list[dict[str, Any]] = []

    def note(action: str, address: int, size: int, stream: int) -> None:
        time_us = 1_700_000_000_000_000 + len(trace)
        stack = list(chance.choice(stacks))
        trace.append(
            {"action": action, "addr": address, "size": size, "stream": stream, "time_us": time_us, "frames": stack}
        )

    allocator = CachingAllocator(1 << 40, on_event=note)
    live: list[int] = []
    while len(trace) < events:
        if len(live) < 200 or chance.random() < 0.5:
            live.append(allocator.malloc(chance.randint(1, chance.choice([4096, MIB, 40 * MIB]))))
        else:
            allocator.free(live.pop(chance.randrange(len(live))))
    return pickle.dumps({**allocator.snapshot(), "device_traces": [trace]})


def main(events: int = EVENTS) -> None:
    """Prints the seconds of each part."""
    data = generated(events)
    print(f"a snapshot of {len(data) / 1e6:.0f} MB with {events:,} events")
    began = time.perf_counter()
    pickle.loads(data)
    print(f"  pickle.loads, for comparison  {time.perf_counter() - began:6.1f} s")
    began = time.perf_counter()
    snapshot = parse_snapshot(data)
    print(f"  read safely                   {time.perf_counter() - began:6.1f} s")
    began = time.perf_counter()
    analyse(snapshot, 0)
    print(f"  explained                     {time.perf_counter() - began:6.1f} s")
    began = time.perf_counter()
    result = replay(snapshot, 0)
    exact = "exact" if result.exact else "NOT exact"
    print(f"  replayed, {exact:<9}           {time.perf_counter() - began:6.1f} s")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
