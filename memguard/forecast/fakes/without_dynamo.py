"""Keeps torch._dynamo and distributed tensors out of a traced process: loading them takes as long as the trace.

Checked with torch 2.13.0 and 2.15.0. Where it is loaded already, nothing changes.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from memguard.forecast.fakes.later import load_later
from memguard.forecast.fakes.without_sympy import keep_sympy_out

_DISTRIBUTED = "torch.distributed.tensor"


class _Stub(ModuleType):
    """Answers what PyTorch asks of torch._dynamo while nothing is compiled."""

    def __getattr__(self, name: str) -> Any:
        if name == "OptimizedModule":
            return type("OptimizedModule", (torch.nn.Module,), {})
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "compiled_autograd":  # torch.func asks that it be off
            return SimpleNamespace(_disable=contextlib.nullcontext, _enable=contextlib.nullcontext)
        return _unchanged if name in ("disable", "allow_in_graph", "run", "assume_constant_result") else _nothing


class _Source:
    """Where a tensor came from, which only a compiler asks."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Nothing is kept."""


def _unchanged(function: Any = None, *_: Any, **__: Any) -> Any:
    return function if function is not None else _unchanged


def _nothing(*_: Any, **__: Any) -> None:
    return None


def keep_dynamo_out() -> None:
    """Put the stub in the place of torch._dynamo, unless that is loaded. Its configuration stays the real one."""
    name = "torch._dynamo"
    if name in sys.modules:
        return
    stub = _Stub(name)
    stub.__path__ = [str(Path(torch.__file__).parent / "_dynamo")]
    sys.modules[name] = stub
    torch._dynamo = stub
    load_later(f"{name}.source", ConstantSource=_Source, RandomValueSource=type("RandomValueSource", (), {}))


def let_dynamo_in() -> None:
    """Load torch._dynamo after all, in the place of its stub."""
    name = "torch._dynamo"
    if isinstance(sys.modules.get(name), _Stub):
        for module in [module for module in sys.modules if module == name or module.startswith(f"{name}.")]:
            if module != f"{name}.config":
                del sys.modules[module]
        del torch._dynamo  # which its own modules ask for while they are loaded
        importlib.import_module(name)


def keep_distributed_tensors_out() -> None:
    """Put a stand-in in their place, with the type that nothing here is of; unless they are loaded."""
    if torch.distributed.is_available():
        load_later(_DISTRIBUTED, DTensor=type("DTensor", (), {}))


def warm_up() -> None:
    """Load what the first operator on a fake tensor would load; for a process that will be forked often."""
    keep_dynamo_out()
    keep_distributed_tensors_out()
    keep_sympy_out()
    from torch._subclasses.fake_tensor import FakeTensorMode

    asks = FakeTensorMode.__dict__.get("avoid_device_init")
    setattr(FakeTensorMode, "avoid_device_init", False)  # noqa: B010 - it asks the driver, which no fork then could
    try:
        with FakeTensorMode():
            torch.nn.functional.layer_norm(torch.empty(2, 2) + torch.empty(2, 2), [2])
    finally:
        if asks is None:
            del FakeTensorMode.avoid_device_init
        else:
            setattr(FakeTensorMode, "avoid_device_init", asks)  # noqa: B010
