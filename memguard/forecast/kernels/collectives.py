"""Collectives on fake tensors: they send nothing and are done at once; what they allocate is allocated.

NCCL's own buffers lie outside PyTorch's allocator: the tracer only notes which groups of ranks communicate.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from memguard.forecast.trace import COMMUNICATION

if TYPE_CHECKING:
    from memguard.forecast.kernels.overrides import Kernel
    from memguard.forecast.tracer import Tracer

_WORK = "__torch__.torch.classes.c10d.Work"
_GROUP = "__torch__.torch.classes.c10d.ProcessGroup"


def collective_kernels() -> dict[Any, Kernel]:
    """A kernel for each collective that this PyTorch has, by operator; needs torch.distributed to be loaded."""
    found: dict[Any, Kernel] = {}
    for full in torch._C._dispatch_get_all_op_names():
        space, _, name = full.partition("::")
        if space == "c10d":
            name, _, overload = name.partition(".")
            found[getattr(getattr(torch.ops.c10d, name), overload or "default")] = _collective
    functional = torch.ops._c10d_functional
    for name in ("wait_tensor", "all_reduce_", "all_reduce_coalesced_", "broadcast_"):
        if hasattr(functional, name):
            found[getattr(functional, name).default] = _same
    return found


def _collective(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Its results are tensors that it was given, and a work that is done."""
    from torch._C._distributed_c10d import ProcessGroup

    schema = func._schema
    for argument, value in zip(schema.arguments, args, strict=False):
        if str(argument.type) == _GROUP:
            tracer.groups.add(tuple(torch.distributed.get_process_group_ranks(ProcessGroup.unbox(value))))
    for value in args:
        for tensor in _tensors(value):
            block = tracer.block_of(tensor)
            if block is not None:
                tracer.owners[block] = tracer.owners[block] or COMMUNICATION
    out = [_done(args[0]) if str(one.type) == _WORK else args[0] for one in schema.returns]
    return tuple(out) if len(out) > 1 else out[0] if out else None


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _done(result: Any) -> Any:
    """The work of a collective that has ended."""
    from torch._C._distributed_c10d import _create_work_from_future  # type: ignore[attr-defined]

    future: Any = torch.futures.Future()
    future.set_result([result] if isinstance(result, torch.Tensor) else result)
    return _create_work_from_future(future).boxed()


def _same(tracer: Tracer, site: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0]
