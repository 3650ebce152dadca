"""Errors that end a notebook cell, which IPython shows without sys.excepthook."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, final

_EVENT = "post_run_cell"  # of IPython's public events; checked with 9.18
KEPT = (
    "memguard: the notebook keeps this error for %debug, and with it what the failed step holds. To free that, run a "
    "cell that fails for nothing (1/0), then gc.collect() and torch.cuda.empty_cache()."
)


@final
class CellErrors:
    """Hears of the error that ended a cell, after IPython has shown it. Outside of IPython it does nothing.

    Args:
        failed: Told of each; must not keep it.
    """

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._events: Any = None

    def install(self) -> None:
        """Listens, where this program runs in IPython."""
        ipython = sys.modules.get("IPython")
        shell = ipython.get_ipython() if ipython is not None else None
        if shell is not None and self._events is None:
            self._events = shell.events
            self._events.register(_EVENT, self._ran)

    def remove(self) -> None:
        """Listens no more; a second call does nothing."""
        events, self._events = self._events, None
        if events is not None:
            events.unregister(_EVENT, self._ran)

    def _ran(self, result: Any) -> None:
        error = getattr(result, "error_in_exec", None)
        if isinstance(error, BaseException):
            self._failed(error)
