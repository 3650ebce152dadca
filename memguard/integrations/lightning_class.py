"""The class `memguard.MemGuard`, for lightning.pytorch and pytorch_lightning alike, and its way in from outside.

The two packages have different Callback classes, and a Trainer accepts only its own. The class is therefore made on
demand from one mixin and whichever of the packages the program has imported; both, if it has both.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from typing import Any

from memguard.errors import MemGuardError
from memguard.integrations.lightning import MemGuardMixin
from memguard.options import disabled, is_set

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
OPTIONS_VARIABLE = "MEMGUARD_OPTIONS"
"""Options as JSON for the MemGuard that MEMGUARD=1 adds; `memguard run` sets it."""


def memguard_class() -> type[Any]:
    """The MemGuard class that suits the Lightning packages imported so far.

    Raises:
        MemGuardError: No Lightning is installed, or none that can be imported.
    """
    bases = tuple(sys.modules[name].Callback for name in _PACKAGES if hasattr(sys.modules.get(name), "Callback"))
    if not bases:
        bases = (_import_callback(),)
    return _make_class(bases)


@functools.lru_cache(maxsize=4)
def _make_class(bases: tuple[type[Any], ...]) -> type[Any]:
    doc = {"__doc__": MemGuardMixin.__doc__, "__module__": "memguard"}
    return type("MemGuard", (MemGuardMixin, *bases), doc)


def callbacks_from_environment() -> list[Any]:
    """What the Trainer adds by itself when MEMGUARD=1 is set: the entry point of group ``callbacks_factory``.

    In a test suite it is discreet: a test may look at the progress bar, at what is printed, into any directory, and at
    what a logger was told.

    Raises:
        ValueError: MEMGUARD or MEMGUARD_DISABLE holds something else than 0, 1, true, false or nothing.
    """
    disabled()  # a misspelt one is answered in a program without a MemGuard as well
    if not is_set("MEMGUARD"):
        return []
    options = json.loads(os.environ.get(OPTIONS_VARIABLE, "{}"))
    discreet = options.pop("discreet", "pytest" in sys.modules)
    if discreet:
        options = {"progress": False, "quiet": True, **options}
    return [remake(options, discreet)]


def remake(options: dict[str, Any], discreet: bool) -> Any:
    """A MemGuard with these options: how a pickle of one comes back."""
    guard = memguard_class()(**options)
    guard._discreet = discreet
    return guard


def _import_callback() -> type[Any]:
    broken: ImportError | None = None
    for name in _PACKAGES:
        try:
            __import__(name)
        except ImportError as error:
            if not (isinstance(error, ModuleNotFoundError) and error.name == name.partition(".")[0]):
                broken = error  # it is there: the fault is not that it is missing
            continue
        callback: type[Any] = sys.modules[name].Callback
        return callback
    if broken is not None:
        raise MemGuardError(f"MemGuard needs Lightning, and what is installed cannot be imported: {broken}") from broken
    raise MemGuardError("MemGuard needs Lightning: pip install 'torch-memguard[lightning]'")
