"""Keeps torch._dynamo and distributed tensors out of a traced process: loading them takes as long as the trace.

Checked with torch 2.13.0 and 2.15.0. Where it is loaded already, nothing changes.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

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


class _Later(ModuleType):
    """Stands for torch.distributed.tensor; becomes it when more is asked than the type that nothing here is of."""

    DTensor = type("DTensor", (), {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # which an import of a submodule asks for
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


class _Loaded(MetaPathFinder, Loader):
    """Submodules that came with their package while they were being imported: they are not made a second time."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        ours = fullname.startswith(f"{_DISTRIBUTED}.") and fullname in sys.modules
        return ModuleSpec(fullname, self) if ours else None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return sys.modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        pass


def keep_distributed_tensors_out() -> None:
    """Put a stand-in, which loads them when they are used, in their place; unless they are loaded."""
    if _DISTRIBUTED in sys.modules or not torch.distributed.is_available():
        return
    sys.modules[_DISTRIBUTED] = _Later(_DISTRIBUTED)
    sys.meta_path.insert(0, _Loaded())


def warm_up() -> None:
    """Load what the first operator on a fake tensor would load; for a process that will be forked often."""
    keep_dynamo_out()
    keep_distributed_tensors_out()
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        torch.nn.functional.layer_norm(torch.empty(2, 2) + torch.empty(2, 2), [2])
