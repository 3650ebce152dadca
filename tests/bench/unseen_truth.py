"""What programs take on the real allocator, one JSON line each; runs under the null GPU, or on a real one."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from unseen import catalogue

_MOST_ENTRIES = 100_000
_AT_A_TIME = 40


def peaks(name: str) -> dict[str, Any]:
    """The peaks of three steps."""
    torch.backends.cuda.enable_cudnn_sdp(False)  # the null GPU has no cuDNN attention
    _, _, step = catalogue.steps()[name]()
    for _ in range(3):
        step()
    stats = torch.cuda.memory_stats()
    return {"allocated": stats["allocated_bytes.all.peak"], "reserved": stats["reserved_bytes.all.peak"]}


def events(name: str) -> dict[str, Any]:
    """Every allocation (positive) and free (negative) of the third step, in order, as they were asked for."""
    with torch.backends.cudnn.flags(enabled=True):
        _, _, step = catalogue.operators()[name]()
        for _ in range(2):
            step()
        record = torch.cuda.memory._record_memory_history
        record(max_entries=_MOST_ENTRIES, stacks="python", context=None, clear_history=True)
        step()
        trace = torch.cuda.memory._snapshot()["device_traces"][0]
        record(enabled=None)
    return {
        "events": [
            entry["size"] if entry["action"] == "alloc" else -entry["size"]
            for entry in trace
            if entry["action"] in ("alloc", "free_requested")
        ]
    }


def main() -> None:
    """Names come on stdin; each group in a process of its own, whole steps one by one."""
    measure = events if sys.argv[1] == "operators" else peaks
    names = sys.stdin.read().splitlines()
    size = _AT_A_TIME if measure is events else 1
    for begin in range(0, len(names), size):
        if os.fork() == 0:
            for name in names[begin : begin + size]:
                try:
                    answer = measure(name)
                except Exception as error:  # said, not hidden
                    answer = {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"}
                print(json.dumps({"name": name, **answer}), flush=True)
            os._exit(0)
        os.wait()


if __name__ == "__main__":
    main()
