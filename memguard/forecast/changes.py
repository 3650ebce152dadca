"""Changes of a training step that save memory, made to the traced copy so that each can be forecast."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer
from torch.utils.checkpoint import checkpoint
from torch.utils.weak import WeakTensorKeyDictionary

from memguard.torch_objects.module_parts import children_of, parts_of


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing to try."""

    name: str
    write: str
    """What to write to get it."""
    cost: str


EXPANDABLE = Change(
    name="expandable segments",
    write="PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    cost="nothing",
)
FUSED = Change(name="fused optimizer", write="fused=True in the optimizer", cost="nothing")
BFLOAT16 = Change(
    name="bf16 autocast",
    write='torch.autocast("cuda", dtype=torch.bfloat16) around the forward',
    cost="precision of the forward; faster",
)
CHECKPOINTING = Change(
    name="activation checkpointing",
    write="torch.utils.checkpoint around each repeated block",
    cost="about a third more computing",
)
HALF_BATCH = Change(
    name="half the batch, accumulated twice",
    write="half the batch size, optimizer step after every second backward",
    cost="smaller kernels; batch norm sees half the batch",
)
RESHARDING = Change(
    name="resharding after the forward",
    write="reshard_after_forward=True in fully_shard",
    cost="backward gathers the parameters again",
)
SHARDING = Change(
    name="sharding",
    write="fully_shard on each repeated block and on the model, in place of DistributedDataParallel",
    cost="parameters are gathered block by block",
)
OFFLOADING = Change(
    name="sharding, with shards on the host",
    write="the same with offload_policy=CPUOffloadPolicy()",
    cost="copies to and from the host, and the optimizer runs there",
)
CHANGES = (EXPANDABLE, FUSED, HALF_BATCH, BFLOAT16, CHECKPOINTING)
"""Cheapest first."""
CHANGES_OF_RANKS = (EXPANDABLE, FUSED, RESHARDING, SHARDING, HALF_BATCH, BFLOAT16, CHECKPOINTING, OFFLOADING)
"""The same for several processes."""


Shards = WeakTensorKeyDictionary
"""What became of each parameter as it was sharded; of those that an optimizer still has."""


def apply_change(name: str | None, model: nn.Module | None, optimizers: list[Optimizer], shards: Shards) -> None:
    """Change the model and optimizers of a trace; does nothing where the change does not apply."""
    if name == FUSED.name:
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                if "fused" in group:
                    group["fused"], group["foreach"] = True, False
    elif name == BFLOAT16.name and model is not None:
        _wrap(model, _autocast)
    elif name == CHECKPOINTING.name and model is not None:
        for block in _repeated(model):
            _wrap(block, _checkpointed)
    elif name == RESHARDING.name and model is not None:
        _reshard(model)
    elif name in (SHARDING.name, OFFLOADING.name):
        for optimizer in optimizers:  # one that was made before its parameters were sharded
            for group in optimizer.param_groups:
                group["params"] = [shards.get(each, each) for each in group["params"]]


def _reshard(model: nn.Module) -> None:
    """What FSDP2 shards lets its gathered parameters go after the forward, but for the root."""
    from torch.distributed.fsdp import FSDPModule

    for module in parts_of(model):
        if isinstance(module, FSDPModule) and module is not model:
            module.set_reshard_after_forward(True, recurse=False)


def prepare_change(name: str | None) -> Shards:
    """Change what the user's code will build with, for the rest of this process; returns what will be sharded."""
    shards = Shards()
    if name in (SHARDING.name, OFFLOADING.name):
        made = _sharding(shards, on_host=name == OFFLOADING.name)
        setattr(DistributedDataParallel, "__init__", made)  # noqa: B010 - mypy takes it for a method
    return shards


def _sharding(shards: Shards, *, on_host: bool) -> Callable[..., None]:
    """What DistributedDataParallel does where FSDP2 shards what it would have replicated."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard

    def shard(wrapper: DistributedDataParallel, module: nn.Module, *_: Any, **given: Any) -> None:
        nn.Module.__init__(wrapper)
        group, mesh = given.get("process_group"), given.get("device_mesh")
        if group is not None:
            mesh = DeviceMesh.from_group(group, "cuda")
        offload = CPUOffloadPolicy(pin_memory=False) if on_host else OffloadPolicy()
        names = Shards({parameter: name for name, parameter in module.named_parameters()})
        for part in (*_repeated(module), module):
            fully_shard(part, mesh=mesh, offload_policy=offload)
        after = dict(module.named_parameters())
        wrapper.module, wrapper.require_backward_grad_sync = module, True
        wrapper.forward = module.__call__  # type: ignore[method-assign]
        for parameter, name in names.items():
            shards[parameter] = after[name]

    return shard


def accumulated_twice(step: Callable[[], Any], optimizers: list[Optimizer]) -> Callable[[], None]:
    """Two of the user's steps with one step of the optimizers, after the second; gradients are kept between them."""
    first = stepped = False

    def hold(optimizer: Optimizer) -> None:
        real_step, real_zero_grad = optimizer.step, optimizer.zero_grad

        @functools.wraps(real_step)
        def held_step(*args: Any, **kwargs: Any) -> Any:
            nonlocal stepped
            stepped = True
            return None if first else real_step(*args, **kwargs)

        @functools.wraps(real_zero_grad)
        def held_zero_grad(*args: Any, **kwargs: Any) -> None:
            if stepped is not first:  # before the first backward, or after the second
                real_zero_grad(*args, **kwargs)

        optimizer.step = held_step  # type: ignore[method-assign]
        optimizer.zero_grad = held_zero_grad  # type: ignore[method-assign]

    def both() -> None:
        nonlocal first, stepped
        for half in (True, False):
            first, stepped = half, False
            step()

    for optimizer in optimizers:
        hold(optimizer)
    return both


def _wrap(module: nn.Module, wrapper: Any) -> None:
    module.forward = wrapper(module.forward)


def _autocast(forward: Any) -> Any:
    @functools.wraps(forward)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return forward(*args, **kwargs)

    return wrapped


def _checkpointed(forward: Any) -> Any:
    @functools.wraps(forward)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    return wrapped


def _repeated(model: nn.Module) -> list[nn.Module]:
    """The blocks of which the model has many: the longest list of equal children that is not inside another."""
    best: list[nn.Module] = []
    for module in parts_of(model):
        if isinstance(module, (nn.ModuleList, nn.Sequential)):
            kinds: dict[type, list[nn.Module]] = {}
            for child in module:
                if any(True for _ in children_of(child)):
                    kinds.setdefault(type(child), []).append(child)
            most = max(kinds.values(), key=len, default=[])
            if len(most) > max(len(best), 1):
                best = most
    return best
