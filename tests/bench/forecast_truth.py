"""The figures of the real allocator for many cases, one JSON line each; runs under the null GPU or on a real one."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from forecast_models import Case, build, rule_of_thumb


def measured(case: Case, steps: int) -> dict[str, object]:
    """Peaks of one case in this process."""
    model, _, step = build(case)
    rule = rule_of_thumb(model)
    for _ in range(steps):
        step()
    stats = torch.cuda.memory_stats()
    return {
        "allocated": stats["allocated_bytes.all.peak"],
        "reserved": stats["reserved_bytes.all.peak"],
        "retries": stats["num_alloc_retries"],
        "rule": rule,
    }


def track(case: Case) -> int | None:
    """What PyTorch's own MemTracker says of the peak; it knows no reserved memory."""
    from torch.distributed._tools.mem_tracker import MemTracker

    model, optimizer, step = build(case)
    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    with tracker:
        for _ in range(2):
            step()
            tracker.reset_mod_stats()
    peak = tracker.get_tracker_snapshot("peak")
    return max(int(parts["Total"]) for device, parts in peak.items() if device.type == "cuda")


def main() -> None:
    """Read cases from stdin, one JSON object a line; answer one line each."""
    for line in sys.stdin.read().splitlines():
        child = os.fork()  # each case in a process of its own; CUDA is not yet initialised here
        if child == 0:
            answer_one(json.loads(line))
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)


def answer_one(request: dict[str, object]) -> None:
    """Measure one case and print the answer."""
    case = Case(**request["case"])
    answer: dict[str, object] = {}
    try:
        if request.get("track"):
            answer["memtracker"] = track(case)
        else:
            answer = measured(case, request["steps"])
    except Exception as error:  # said, not hidden
        answer = {"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    print(json.dumps({"case": request["case"], **answer}), flush=True)


if __name__ == "__main__":
    main()
