"""What of memguard's is still in the process: in places of torch and Python, on models, on optimizers."""

from __future__ import annotations

import builtins
import functools
import gc
import logging
import signal
import sys
import threading
import types
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

import memguard
from memguard.torch_objects.hidden_hooks import HookDict
from memguard.torch_objects.module_parts import named_parameters_of, named_parts_of

OURS = str(Path(memguard.__file__).parent)

PLACES: tuple[Any, ...] = (
    *(builtins, gc, logging, signal, sys, threading, threading.Thread, warnings),
    *(torch, torch.Tensor, torch.UntypedStorage, torch.nn.Module, torch.nn.Parameter, torch.nn.modules.module),
    *(torch.autograd, torch.autograd.Function, torch.autograd.graph, torch.optim.Optimizer),
    sys.modules["torch.optim.optimizer"],  # torch.optim takes the name away
    *(torch.cuda, torch.cuda.memory, torch.cuda.graphs, torch.mps, torch.xpu, torch.backends.cudnn),
    *(torch.utils.data.DataLoader, torch.utils.data.dataloader, torch.func, torch.nn.functional),
)
"""What a guard could put a function of its own into."""


def is_ours(value: Any) -> bool:
    """Whether a function, a bound method, a partial or an object is of memguard's making."""
    while type(value) is functools.partial:
        if str(vars(value).get("__module__")).startswith("memguard."):
            return True  # around a function of C's
        value = value.func
    if isinstance(value, types.MethodType):
        return is_ours(value.__func__) or is_ours(value.__self__)
    if isinstance(value, types.FunctionType):  # its module may be borrowed, by functools.wraps
        return value.__code__.co_filename.startswith(OURS)
    made_in = getattr(value, "__module__", None)  # of an object, that of its class
    return type(made_in) is str and made_in.startswith("memguard.")


def in_process() -> list[str]:
    """Where functions and objects of ours stand in `PLACES`, or in a table of hooks there."""
    found = [
        f"{place.__name__}.{name}"
        for place in PLACES
        for name, value in list(vars(place).items())
        if any(map(is_ours, (value, *inside(value))))
    ]
    handlers = {signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}
    return [*found, *(f"the handler {handler} of a signal" for handler in handlers if is_ours(handler))]


def inside(value: Any) -> list[Any]:
    """What a table or a list holds; of the table of modules, those of others."""
    if value is sys.modules:
        return [module for name, module in list(sys.modules.items()) if name.partition(".")[0] != "memguard"]
    if issubclass(type(value), dict):
        hidden = [hook for _, hook in value.ours] if type(value) is HookDict else []
        return [*dict.values(value), *hidden]
    return list(value) if type(value) in (list, tuple, set) else []


def on_objects(*owners: Any) -> list[str]:
    """Where functions of ours stand on modules, their parameters and optimizers: hooks and replaced methods."""
    found = []
    for owner in owners:
        parts = [(type(owner).__name__, owner)]
        if isinstance(owner, nn.Module):
            parts += [*list(named_parts_of(owner))[1:], *named_parameters_of(owner)]
        for name, part in parts:
            hooks = {"tensor hooks": part._backward_hooks} if isinstance(part, torch.Tensor) else {}
            for attribute, value in [*vars(part).items(), *hooks.items()]:
                if any(map(is_ours, (value, *inside(value)))):
                    found.append(f"{name}.{attribute}")
    return found
