"""Records the snapshots of this folder with the real allocator, on the null GPU; ``record.py NAME`` writes NAME.

The workloads are random but seeded. Stacks are cut to the lines of this file's own frames, named as ``train.py``.
"""

from __future__ import annotations

import gzip
import os
import pickle
import random
import sys
from pathlib import Path
from typing import Any

MIB = 1 << 20
WORKLOADS: dict[str, dict[str, Any]] = {
    # name: allocator configuration, and what happens
    "streams": {"conf": "", "seed": 1, "before": 600, "streams": True},
    "ring-buffer": {"conf": "", "seed": 2, "before": 600, "streams": True, "max_entries": 900},
    "expandable": {"conf": "expandable_segments:True", "seed": 3, "before": 600, "streams": True},
    "graphs": {"conf": "", "seed": 4, "before": 100, "graphs": True},
    "max-split": {"conf": "max_split_size_mb:64", "seed": 5, "before": 600, "streams": True},
    "roundup": {"conf": "roundup_power2_divisions:[16:8,64:2,256:1,>:4]", "seed": 6, "before": 300},
    "leak": {"conf": "", "seed": 7, "before": 0, "training": True},
}


def record(name: str) -> None:
    """Writes one snapshot."""
    workload = WORKLOADS[name]
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = workload["conf"]
    import torch

    torch.cuda.init()
    chance = random.Random(workload["seed"])
    side = [None, torch.cuda.Stream(), torch.cuda.Stream()] if workload.get("streams") else [None]
    live: list[torch.Tensor] = []
    work(torch, chance, side, live, workload["before"])
    torch.cuda.memory._record_memory_history(max_entries=workload.get("max_entries", sys.maxsize), stacks="python")
    if workload.get("training"):
        train(torch)
    else:
        work(torch, chance, side, live, 400)
    if workload.get("graphs"):
        graph = capture(torch, chance)
        work(torch, chance, side, live, 200)
        torch.cuda.empty_cache()
        work(torch, chance, side, live, 100)
        del graph
    write(torch.cuda.memory._snapshot(), Path(__file__).parent / f"{name}.pickle.gz")


def work(torch: Any, chance: random.Random, side: list[Any], live: list[Any], operations: int) -> None:
    """Random allocations and frees, of all sizes, until memory runs out now and then."""
    for _ in range(operations):
        act = chance.random()
        if act < 0.004:
            torch.cuda.empty_cache()
        elif act < 0.54 or not live:
            with torch.cuda.stream(chance.choice(side)):
                try:
                    live.append(torch.empty(size(chance), dtype=torch.uint8, device="cuda"))
                except torch.OutOfMemoryError:
                    del live[:: chance.randint(2, 5)]
        else:
            tensor = live.pop(chance.randrange(len(live)) if chance.random() < 0.5 else -1)
            if len(side) > 1 and chance.random() < 0.3:
                tensor.record_stream(chance.choice(side[1:]))
            del tensor


def size(chance: random.Random) -> int:
    """Bytes: many small ones, some huge ones."""
    low, high = chance.choice([(1, 4096), (1, MIB), (MIB, 12 * MIB), (MIB, 200 * MIB), (200 * MIB, 900 * MIB)])
    return chance.randint(low, high)


def capture(torch: Any, chance: random.Random) -> tuple[Any, list[Any]]:
    """Two CUDA graphs with pools of their own, of which the second is let go again."""
    kept = []
    for _ in range(2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            tensors = [torch.empty(size(chance) // 8 + 1, dtype=torch.uint8, device="cuda") for _ in range(8)]
            del tensors[::2]
            tensors += [torch.empty(size(chance) // 8 + 1, dtype=torch.uint8, device="cuda") for _ in range(4)]
        kept.append((graph, tensors))
    return kept[0]


def train(torch: Any) -> None:
    """A training loop with the oldest leak: losses summed with their graphs."""
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    history = []
    for _ in range(12):
        output = model(torch.empty(256, 512, device="cuda"))
        loss = output.square().mean()
        loss.backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad()
        history.append(loss)


def write(snapshot: dict[str, Any], path: Path) -> None:
    """Writes it with frames of this file only, and without what names a machine."""
    entries = [entry for trace in snapshot["device_traces"] for entry in trace]
    blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    for item in [*entries, *blocks, *snapshot["segments"]]:
        frames = [frame for frame in item.get("frames", []) if frame["filename"].endswith("record.py")]
        item["frames"] = [{**frame, "filename": "/home/user/train.py"} for frame in frames]
    path.write_bytes(gzip.compress(pickle.dumps(snapshot), mtime=0))


if __name__ == "__main__":
    record(sys.argv[1])
    os._exit(0)
