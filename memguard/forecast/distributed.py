"""Data parallel training as one of its processes sees it, without a process group. Changes the process for good.

DistributedDataParallel adds buckets as large as the gradients (unless they are views of them): Reducer.cpp. What NCCL
takes lies outside PyTorch's allocator. Where the number of processes is known, `fakes.process_group` is used instead.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from memguard.errors import MemGuardError
from memguard.torch_objects.module_parts import parameters_of

if TYPE_CHECKING:
    from memguard.forecast.tracer import Tracer

_SHARDED = (
    "fully sharded training needs the number of processes: give --nproc 8 on the command line, or "
    "memguard.forecast(model=build, nproc=8) where build returns (model, optimizer, step)"
)


def stand_in_for_process_group(tracer: Tracer) -> None:
    """Let code that wraps its model in DistributedDataParallel run alone; collectives do nothing."""
    if not torch.distributed.is_available():
        return

    def wrap(self: Any, module: nn.Module, *_: Any, gradient_as_bucket_view: bool = False, **__: Any) -> None:
        nn.Module.__init__(self)
        self.module = module
        numbers = Counter[torch.dtype]()
        for parameter in parameters_of(module):
            if parameter.requires_grad:
                numbers[parameter.dtype] += parameter.numel()
        device = "cuda" if any(p.device.type == "cuda" for p in parameters_of(module)) else None
        sizes = {} if gradient_as_bucket_view else numbers
        self._buckets = [torch.empty(number, dtype=dtype, device=device) for dtype, number in sizes.items()]
        size = "no memory of their own" if gradient_as_bucket_view else "as much memory as the gradients"
        tracer.note(f"DistributedDataParallel: traced as one process, buckets take {size}, NCCL's buffers come on top")

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def refuse(*_: Any, **__: Any) -> None:
        raise MemGuardError(_SHARDED)

    replaced: dict[str, Any] = {
        "__init__": wrap,
        "forward": forward,
        "__call__": nn.Module.__call__,
        "train": nn.Module.train,
        "__getstate__": nn.Module.__getstate__,
        "no_sync": lambda self: contextlib.nullcontext(),
        "register_comm_hook": _nothing,
    }
    for name, value in replaced.items():
        setattr(DistributedDataParallel, name, value)
    for name in ("init_process_group", "destroy_process_group", "barrier", "all_reduce", "broadcast"):
        setattr(torch.distributed, name, _nothing)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    torch.distributed.get_rank = lambda *_: 0
    torch.distributed.get_world_size = lambda *_: ranks
    torch.distributed.is_initialized = lambda: True
    sharded: Any = getattr(torch.distributed, "fsdp", None)
    for holder, name in ((sharded, "fully_shard"), (getattr(sharded, "FullyShardedDataParallel", None), "__init__")):
        if holder is not None:
            setattr(holder, name, refuse)


def _nothing(*_: Any, **__: Any) -> None:
    return None
