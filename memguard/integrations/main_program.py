"""Runs a program as Python itself runs it: as the module ``__main__``, a file under its absolute path."""

from __future__ import annotations

import builtins
import os
import pkgutil
import runpy
import signal
import sys
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType

_OURS = (__file__, runpy.__file__, "<frozen runpy>")


def run_file(path: str, *, stays: bool = False) -> None:
    """Runs a program until its end; what it raises comes out.

    ``runpy.run_path`` leaves ``__file__`` and the names in tracebacks as they were typed, so that a program that goes
    to another folder does not find its files. An archive, a folder or compiled code it runs all the same.

    Args:
        path: The file.
        stays: Whether it is the process's main module from then on: what the program does as the process ends (in
            atexit, in a thread) finds its classes there.
    """
    if pkgutil.get_importer(path) is not None:
        runpy.run_path(path, run_name="__main__")
        return
    file = os.path.abspath(path)  # symbolic links stay, as in Python
    source = Path(file).read_bytes()
    try:
        code = compile(source, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        if file.endswith(".py"):
            raise
        runpy.run_path(path, run_name="__main__")
        return
    module, before = ModuleType("__main__"), sys.modules["__main__"]
    module.__dict__.update(__file__=file, __cached__=None, __builtins__=builtins)
    module.__loader__ = SourceFileLoader("__main__", file)
    if sys.version_info < (3, 14):
        module.__annotations__ = {}
    sys.modules["__main__"] = module
    try:
        exec(code, module.__dict__)
    finally:
        if not stays:
            sys.modules["__main__"] = before


def run_module(name: str) -> None:
    """Runs a module as ``python -m`` does, as the process's main module from then on.

    Args:
        name: The module's, with dots.
    """
    sys.modules["__main__"] = ModuleType("__main__")
    sys.modules["__main__"].__dict__["__builtins__"] = builtins
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]  # what ``python -m`` calls, checked up to Python 3.14


def without_ours(tb: TracebackType | None) -> TracebackType | None:
    """The traceback from the program's own first frame on, which plain Python shows; none where it did not compile."""
    while tb is not None and tb.tb_frame.f_code.co_filename in _OURS:
        tb = tb.tb_next
    return tb


def execute(target: str, arguments: Sequence[str], *, module: bool, owns_process: bool) -> tuple[int, str]:
    """Runs the program; its exit code, and how it ended in words."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [target, *arguments]
    has_first = not getattr(sys.flags, "safe_path", False)  # Python gives the program's folder the first place
    if owns_process and has_first:
        del sys.path[0]  # memguard's own
    try:
        if has_first:
            sys.path.insert(0, os.getcwd() if module else str(Path(target).resolve().parent))
        if not module:
            run_file(target, stays=owns_process)
        elif owns_process:
            run_module(target)
        else:
            runpy.run_module(target, run_name="__main__", alter_sys=True)
    except SystemExit as leave:
        return _exit_code(leave.code), "finished" if not leave.code else f"exit code {_exit_code(leave.code)}"
    except BaseException as error:
        tb = error.__traceback__
        error.__traceback__ = without_ours(tb.tb_next if tb is not None else None)  # the first frame is this one
        sys.excepthook(type(error), error, error.__traceback__)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
        return code, f"an exception: {type(error).__name__}"
    finally:
        if not owns_process:
            sys.argv, sys.path[:] = argv, path
    return 0, "finished"


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1
