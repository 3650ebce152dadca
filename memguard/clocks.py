"""Clocks that tests and user code cannot patch: a private copy of Python's time module. No torch.

A test that patches ``time.perf_counter`` with a list of answers means its own reader of the clock, not memguard too.
"""

from __future__ import annotations

import importlib.util
import time as _shared
from collections.abc import Callable
from importlib.machinery import BuiltinImporter
from types import ModuleType


def _copy() -> ModuleType:
    spec = BuiltinImporter.find_spec("time")
    if spec is None or spec.loader is None:  # not built into this Python
        return _shared
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_own = _copy()
now: Callable[[], float] = _own.time
perf_counter: Callable[[], float] = _own.perf_counter
monotonic: Callable[[], float] = _own.monotonic
thread_time: Callable[[], float] = _own.thread_time
time_ns: Callable[[], int] = _own.time_ns
sleep: Callable[[float], None] = _own.sleep
