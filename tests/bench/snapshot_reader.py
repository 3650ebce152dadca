"""How fast a snapshot of about 100 MB is read, explained and replayed: ``python -m tests.bench snapshot_reader``."""

from __future__ import annotations

import pickle
import random
import time
from collections.abc import Callable
from typing import Any

from memguard.allocator.analysis import analyse
from memguard.allocator.caching import CachingAllocator
from memguard.allocator.replay import replay
from memguard.allocator.snapshot_reader import parse_snapshot
from memguard.report.html_snapshot import snapshot_map
from tests.bench.rows import Row

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


def measure(*, quick: bool = False) -> list[Row]:
    """Seconds of each part, once; and what reading safely costs beside reading dangerously."""
    data = generated(EVENTS // 10 if quick else EVENTS)
    seconds: dict[str, float] = {}

    def timed(name: str, act: Callable[[], Any]) -> Any:
        began = time.process_time()
        result = act()
        seconds[name] = time.process_time() - began
        return result

    timed("pickle.loads, for comparison", lambda: pickle.loads(data))
    snapshot = timed("read safely", lambda: parse_snapshot(data))
    timed("explained", lambda: analyse(snapshot, 0))
    assert timed("replayed", lambda: replay(snapshot, 0)).exact
    timed("read and drawn over its history for the Memory tab", lambda: snapshot_map(data))
    size = f"a snapshot of {len(data) / 1e6:.0f} MB"
    return [Row(f"{size}, {name}", took, "s") for name, took in seconds.items()]
