"""Loading memguard's own modules, which is part of what a program waits for."""

from __future__ import annotations

import gc
import importlib
from types import ModuleType


def load(name: str) -> ModuleType:
    """Imports a module, and what it needs, while the garbage collector rests.

    Hundreds of modules make so many objects that the collector would go over all of the process's, torch's too; of what
    an import makes nothing is garbage.

    Raises:
        ImportError: There is no such module, or not what it needs.
    """
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        if is_enabled:
            gc.enable()
