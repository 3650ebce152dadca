"""One rank of small distributed trainings, without and with a guard: ``distributed_program.py RANK STORE LOGDIR``."""

from __future__ import annotations

import contextlib
import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import memguard


def count_collectives() -> list[str]:
    """Wraps every collective of torch.distributed so that it writes its name down."""
    called: list[str] = []
    for name in ("all_reduce", "broadcast", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor", "barrier",
                 "broadcast_object_list", "all_gather_object", "gather", "scatter", "reduce"):  # fmt: skip
        original = getattr(dist, name)

        def counted(*args: object, _original: object = original, _name: str = name, **kwargs: object) -> object:
            called.append(_name)
            return _original(*args, **kwargs)  # type: ignore[operator]

        setattr(dist, name, counted)
    return called


def make(kind: str) -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))
    if kind == "ddp":
        return DistributedDataParallel(model)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    for layer in (model[0], model[3]):  # type: ignore[index]
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(kind: str, rank: int, logdir: str | None, called: list[str]) -> dict[str, object]:
    """The losses of twelve steps, and the collectives that were called for them."""
    model = make(kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    guarding: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    called.clear()
    if logdir is not None:
        guarding = memguard.watch(model, optimizer, logdir=logdir, quiet=True)
    losses = []
    torch.manual_seed(rank)
    with guarding:
        for step in range(12):
            loss = functional.cross_entropy(model(torch.randn(4, 8)), torch.randint(0, 4, (4,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if step % 6 == 5:
                model.eval()
                losses.append(model(torch.ones(2, 8)).sum().item())
                model.train()
    return {"losses": losses, "collectives": list(called)}


def main(rank: int, store: str, logdir: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    called = count_collectives()
    told = {}
    for kind in ("ddp", "fsdp"):
        plain = train(kind, rank, None, called)
        told[kind] = [plain, train(kind, rank, f"{logdir}/{kind}", called)]
    print(json.dumps(told), flush=True)
    dist.destroy_process_group()
    os._exit(0)  # gloo's threads now and then abort the interpreter's own exit, with and without memguard


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
