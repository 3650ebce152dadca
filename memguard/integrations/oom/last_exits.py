"""Uncaught errors of the program, of a thread, or of a notebook cell."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, final


class Failed(Protocol):
    """Called with an error, of which it must keep no reference."""

    def __call__(self, error: BaseException, *, shown: bool = False) -> None:
        """``shown``: its traceback is on the screen already."""


@final
class LastExits:
    """Stands in front of the hooks for uncaught errors, and hands each error on to the hook that was there.

    Args:
        failed: Told of each error first.
    """

    def __init__(self, failed: Failed) -> None:
        self._failed = failed
        self._installed = False
        self._program_hook: Callable[..., Any] | None = None
        self._thread_hook: Callable[..., Any] | None = None
        self._cells = CellErrors(self._cell_failed)

    def install(self) -> None:
        """Takes its place before the hooks that are there."""
        self._installed = True
        self._program_hook, sys.excepthook = sys.excepthook, self._program_failed
        self._thread_hook, threading.excepthook = threading.excepthook, self._thread_failed
        self._cells.install()

    def remove(self) -> None:
        """Puts back the hooks that were there; a second call does nothing."""
        self._installed = False
        self._cells.remove()
        # Runs that overlap may end in any order: one that ended underneath another goes with the last.
        while (top := _closed(sys.excepthook)) is not None and top._program_hook is not None:
            sys.excepthook = top._program_hook
        while (top := _closed(threading.excepthook)) is not None and top._thread_hook is not None:
            threading.excepthook = top._thread_hook

    def _program_failed(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self._failed(error)
        (self._program_hook or sys.__excepthook__)(kind, error, trace)

    def _thread_failed(self, args: Any) -> None:
        if args.exc_value is not None:
            self._failed(args.exc_value)
        (self._thread_hook or threading.__excepthook__)(args)

    def _cell_failed(self, error: BaseException) -> None:
        self._failed(error, shown=True)


def _closed(hook: object) -> LastExits | None:
    """Whose hook this is, if it is one of ours and no longer in use."""
    exits = getattr(hook, "__self__", None)
    return exits if type(exits) is LastExits and not exits._installed else None


# Errors that end a notebook cell, which IPython shows without sys.excepthook.

_EVENT = "post_run_cell"  # of IPython's public events; checked with 9.18
KEPT = (
    "memguard: the notebook keeps this error for %debug, and with it what the failed step holds. To free that, run a "
    "cell that fails for nothing (1/0), then gc.collect() and torch.cuda.empty_cache()."
)


@final
class CellErrors:
    """Hears of the error that ended a cell, after IPython has shown it. Outside of IPython it does nothing.

    Args:
        failed: Called with each error, of which it must keep no reference.
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
