"""A rank of a small training under torchrun: ``ranks_program.py KIND [LOGDIR]``; without a directory it is unguarded.

Prints one line of JSON: the losses, and how many operations the backend counted, those of DDP's own reducer among them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

import memguard

STEPS = 24
RANK = int(os.environ["RANK"])
kept: list[torch.Tensor] = []
outputs: list[torch.Tensor] = []


def make(kind: str, logdir: str | None) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(0.1), nn.Linear(256, 8))
    if kind == "wrapped" and logdir is not None:
        model = memguard.wrap(model, logdir=logdir, device="virtual:64MiB", quiet=True)
    if kind == "fsdp2":
        mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in (model[0], model[3]):  # type: ignore[index]
            fully_shard(layer, mesh=mesh)
        return fully_shard(model, mesh=mesh)
    if kind == "stages":  # two stages of two replicas each
        mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
        return DistributedDataParallel(model, process_group=mesh["dp"].get_group())
    if kind == "fsdp1":
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    return DistributedDataParallel(model, find_unused_parameters=kind in ("unused", "wrapped"))


def step(kind: str, model: nn.Module, optimizer: torch.optim.Optimizer, number: int) -> float:
    rows = 64 if kind == "uneven" and RANK == 2 else 16
    loss = model(torch.randn(rows, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if kind in ("heavy", "oom") and RANK == 2:
        kept.append(torch.ones(256 if kind == "heavy" else 1024, 1024) * loss)
    if kind == "stages" and RANK >= 2:
        outputs.append(torch.ones(256, 1024) + loss.detach())
    if kind == "killed" and RANK == 1 and number == 9:
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "failed" and RANK == 1 and number == 9:
        raise ValueError("this rank's data is broken")
    if kind == "oom" and RANK == 2 and number == 9:  # unguarded: there is no virtual GPU to be full
        raise torch.OutOfMemoryError("CUDA out of memory.")
    return loss.item()


def main(kind: str, logdir: str | None) -> None:
    dist.init_process_group("gloo")
    model = make(kind, logdir)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(RANK)
    guard: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
    if logdir is not None and kind != "wrapped":
        device = "auto" if kind == "killed" else "virtual:64MiB"
        options = {} if logdir == "-" else {"logdir": logdir}
        guard = memguard.watch(model, optimizer, device=device, quiet=True, **options)
    losses = []
    with guard:
        for number in range(STEPS):
            losses.append(step(kind, model, optimizer, number))
            if number % 8 == 7:
                model.eval()
                losses.append(model(torch.ones(2, 64)).sum().item())
                model.train()
    count = dist.distributed_c10d._get_default_group()._get_sequence_number_for_group()
    kept.clear()
    told = json.dumps({"rank": RANK, "losses": losses, "collectives": count})
    os.write(1, f"{told}\n".encode())  # in one piece: the ranks share a pipe
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # gloo's threads now and then abort the interpreter's own exit, with and without memguard


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)
