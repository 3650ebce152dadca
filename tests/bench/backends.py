"""Microseconds that a look at each device costs: ``python -m tests.bench backends``."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from memguard.backends.choose import choose_backend
from memguard.backends.cuda import CudaBackend
from memguard.backends.host import HostMemory
from tests.bench.rows import Row

REPEATS, CALLS = 15, 400


def microseconds(call: Callable[[], object], calls: int = CALLS) -> float:
    """The median cost of a call over some repeats."""
    costs = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        for _ in range(calls):
            call()
        costs.append((time.perf_counter() - began) / calls * 1e6)
    return statistics.median(costs)


def host() -> dict[str, float]:
    """What each batch, and each second, pays on any machine."""
    memory = HostMemory()
    memory.install()
    return {
        "host rss_bytes": microseconds(memory.rss_bytes),
        "host read_slow": microseconds(memory.read_slow, 10),
        "auto boundary, no accelerator in use": microseconds(choose_backend("auto").boundary),
    }


def cuda() -> dict[str, float]:
    """What a batch pays on CUDA, beside torch's own functions, and what other readers of the peaks pay."""
    kept = [torch.empty(2**20, device="cuda") for _ in range(100)]
    rows = {
        "torch._C._cuda_memoryStats": microseconds(lambda: torch._C._cuda_memoryStats(0)),
        "torch.cuda.max_memory_allocated": microseconds(torch.cuda.max_memory_allocated),
    }
    for peaks in ("shared", "exclusive", "off"):
        backend = CudaBackend(peaks=peaks)
        backend.install()
        backend.boundary()
        rows[f"cuda boundary, peaks={peaks}"] = microseconds(backend.boundary)
        rows[f"cuda read, peaks={peaks}"] = microseconds(backend.read)
        if peaks == "shared":
            rows["cuda read_slow"] = microseconds(backend.read_slow, 10)
            rows["torch.cuda.max_memory_allocated, with us"] = microseconds(torch.cuda.max_memory_allocated)
        backend.remove()
    del kept
    return rows


def measure() -> list[Row]:
    """Microseconds of each look."""
    rows = host()
    if torch.cuda.is_available():
        rows |= cuda()
    return [Row(name, cost, "us") for name, cost in rows.items()]
