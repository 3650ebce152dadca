"""Hooks that tell the tracer which module runs, in which phase, and whose memory a gradient or a state is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules import module as module_hooks
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from memguard.forecast.fakes.tensors import inside
from memguard.forecast.trace import COMMUNICATION
from memguard.forecast.tracer import Tracer
from memguard.text.units import format_bytes
from memguard.torch_objects.module_parts import named_parts_of


def watch(tracer: Tracer, model: nn.Module | None, optimizers: list[Optimizer]) -> Callable[[], None]:
    """Hooks that tell module, phase and owner; the function returned is called after each step."""
    parts = named_parts_of(model) if model is not None else ()
    names = {id(module): _told(name, module) for name, module in parts}
    stack = tracer.sites.modules

    def enter(module: nn.Module, inputs: Any) -> None:
        if not stack:
            in_bf16 = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") is torch.bfloat16
            tracer.autocasts.add(in_bf16)
        stack.append(names.get(id(module), type(module).__name__))

    def leave(module: nn.Module, inputs: Any, output: Any) -> None:
        if stack:
            stack.pop()

    def own() -> None:
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        _own(tracer, "gradients", parameter.grad)
                    state = optimizer.state.get(parameter)
                    if isinstance(state, dict):
                        for value in state.values():
                            _own(tracer, "optimizer states", value)

    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        tracer.sites.optimizer_depth += 1
        _fill_history(tracer, optimizer)
        own()

    def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        tracer.sites.optimizer_depth -= 1
        own()

    if tracer.names_modules:
        module_hooks.register_module_forward_pre_hook(enter)
        module_hooks.register_module_forward_hook(leave, always_call=True)
    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)
    return own


def _told(name: str, module: nn.Module) -> str:
    """A module as people look for it: its name in the model and its class."""
    kind = type(module).__name__
    return f"{name} ({kind})" if name else kind


def _own(tracer: Tracer, owner: str, value: Any) -> None:
    if isinstance(value, FakeTensor) and value.fake_device.type == "cuda":
        block = tracer.block_of(value)
        if block is not None and tracer.owners[block] in ("", COMMUNICATION):
            tracer.owners[block] = owner
    elif isinstance(value, torch.Tensor):
        for part in inside(value):
            if part is not value:
                _own(tracer, owner, part)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _own(tracer, owner, item)


def _fill_history(tracer: Tracer, optimizer: Optimizer) -> None:
    """Gives L-BFGS, before its second step, the history that many steps collect: a forecast looks at few.

    Its own test whether to add to it reads a value, which is unknown.
    """
    if not isinstance(optimizer, torch.optim.LBFGS):
        return
    [group] = optimizer.param_groups
    state = next((each for each in optimizer.state.values() if "old_dirs" in each and "d" in each), None)
    if state is None:
        return
    size, direction = int(group["history_size"]), state["d"]
    # While a further iteration evaluates the closure, the newest pair lies in the step's own variables already.
    wanted = size - (group["max_iter"] > 1)
    if len(state["old_dirs"]) >= wanted:
        return
    while len(state["old_dirs"]) < wanted:
        state["old_dirs"].append(torch.empty_like(direction))
        state["old_stps"].append(torch.empty_like(direction))
        state["ro"].append(direction.new_empty(()))
    nbytes = 2 * size * direction.numel() * direction.element_size()
    tracer.note(
        f"LBFGS's history is counted as full from the second step on: {size} directions and steps, "
        f"{format_bytes(nbytes)} (history_size={size})"
    )
