"""Changes of a training step that save memory, made to the traced copy so that each can be forecast."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import nn
from torch.optim.optimizer import Optimizer
from torch.utils.checkpoint import checkpoint

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
CHANGES = (EXPANDABLE, FUSED, HALF_BATCH, BFLOAT16, CHECKPOINTING)
"""Cheapest first."""


def apply_change(name: str | None, model: nn.Module | None, optimizers: list[Optimizer]) -> None:
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
