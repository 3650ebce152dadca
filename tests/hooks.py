"""Where hooks of memguard's stand on modules, which only torch's own call sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.modules import module as torch_module

from memguard.torch_objects.hidden_hooks import HookDict


def hook_dicts_of(owner: Any) -> list[HookDict]:
    """The dictionaries of ours in the place of a module's own; of ``torch.nn.modules.module``, those for all."""
    return [value for value in vars(owner).values() if type(value) is HookDict]


def hooks_on(owner: Any) -> list[Callable[..., object]]:
    """The hooks of ours on one module."""
    return [hook for hooks in hook_dicts_of(owner) for _, hook in hooks.ours]


def hooks_inside(model: nn.Module) -> list[Callable[..., object]]:
    """Likewise of a module and all inside of it."""
    return [hook for part in model.modules() for hook in hooks_on(part)]


def hooks_everywhere() -> list[Callable[..., object]]:
    """The hooks of ours on the calls of all modules."""
    return hooks_on(torch_module)
