"""Runs a file as Python itself runs it: as the module ``__main__``, under its absolute path."""

from __future__ import annotations

import builtins
import os
import pkgutil
import runpy
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType

_OURS = (__file__, runpy.__file__, "<frozen runpy>")


def run_file(path: str) -> None:
    """Runs a program until its end; what it raises comes out.

    ``runpy.run_path`` leaves ``__file__`` and the names in tracebacks as they were typed, so that a program that goes
    to another folder does not find its files. An archive, a folder or compiled code it runs all the same.

    Args:
        path: The file.
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
        sys.modules["__main__"] = before


def without_ours(tb: TracebackType | None) -> TracebackType | None:
    """The traceback from the program's own first frame on, which plain Python shows; none where it did not compile."""
    while tb is not None and tb.tb_frame.f_code.co_filename in _OURS:
        tb = tb.tb_next
    return tb
