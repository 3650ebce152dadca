"""The device guard that lets fake CUDA tensors run a backward pass on a machine without CUDA.

Checked with torch 2.13.0 (CPU build) and 2.15.0 (CUDA build, no driver). Only a traced child process installs it.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import CodeType

import torch
from torch.autograd import graph

from memguard.errors import MemGuardError

_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"
"""c10::impl::device_guard_impl_registry: one pointer for each device type."""
_CUDA = 1
_SLOTS = 20
_VIRTUAL_FUNCTIONS = 64

_kept_alive: list[object] = []


def install_device_guard() -> None:
    """Make PyTorch's own no-op guard the guard of device type CUDA, for the rest of this process.

    PyTorch creates that guard itself, but only where a guard that reports zero devices stands in the registry: so one
    is put there, whose every virtual function answers zero, and PyTorch replaces it at once.

    Raises:
        MemGuardError: This build of PyTorch has no such registry.
    """
    ensure = getattr(torch._C, "_ensureCUDADeviceGuardSet", None)
    folder = Path(torch.__file__).parent / "lib"
    library = next((path for name in ("libc10.so", "libc10.dylib") if (path := folder / name).exists()), None)
    if ensure is None or library is None:
        raise MemGuardError(
            f"torch {torch.__version__} on this platform cannot trace a CUDA step without CUDA: "
            "forecasts need a newer one (made with torch 2.13 and 2.15)"
        )
    try:
        registry = (ctypes.c_void_p * _SLOTS).in_dll(ctypes.CDLL(str(library)), _REGISTRY)
    except ValueError:
        raise MemGuardError(
            f"torch {torch.__version__} keeps its device guards in a place unknown to memguard"
        ) from None
    zero = ctypes.CFUNCTYPE(ctypes.c_long)(lambda: 0)
    address = ctypes.cast(zero, ctypes.c_void_p).value
    functions = (ctypes.c_void_p * _VIRTUAL_FUNCTIONS)(*[address] * _VIRTUAL_FUNCTIONS)
    guard = (ctypes.c_void_p * 1)(ctypes.addressof(functions))
    _kept_alive.extend((zero, functions, guard))
    registry[_CUDA] = ctypes.addressof(guard)
    ensure()
    if registry[_CUDA] == ctypes.addressof(guard):
        raise MemGuardError(f"torch {torch.__version__} did not install its no-op CUDA guard")


def engine_code() -> CodeType:
    """The code object from which the autograd engine is entered.

    A device asked for straight from there is asked by the engine itself, which is told "cpu": it then needs no streams
    of an accelerator that does not exist. Everybody else is told the truth, "cuda".
    """
    return graph._engine_run_backward.__code__
