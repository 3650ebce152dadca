"""Where each failure of memguard itself ends: logged once, that part switched off, the run goes on."""

from __future__ import annotations

import contextlib
import logging
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import final

logger = logging.getLogger("memguard")

RECORDING = "recording"
"""The part that writes the run to disk."""


@final
class ComponentHealth:
    """Which parts of memguard are off in this run.

    Args:
        note: Takes what was switched off, in words, for the summary.
        switched_off: Told the name of a part that failed.
    """

    def __init__(self, note: Callable[[str], None], switched_off: Callable[[str], None]) -> None:
        self._note, self._switched_off = note, switched_off
        self._off: set[str] = set()

    def part(self, name: str) -> AbstractContextManager[None]:
        """A context in which an exception of memguard's own is logged once and switches the named part off.

        Whoever enters it again asks `is_off` first where going on would be wasted. Never used around user code.
        """
        return _Part(self, name)

    def is_off(self, name: str) -> bool:
        """Whether a part failed and was switched off."""
        return name in self._off

    def failed(self, name: str, error: BaseException) -> None:
        """Logs a part's failure with its traceback, once, and switches it off."""
        if name in self._off:
            return
        self._off.add(name)
        self._switched_off(name)
        with contextlib.suppress(Exception):  # a hostile __str__, a log handler that raises
            # As text: a log handler that kept the exception would keep the step's tensors with it.
            trace = "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
            note = f"memguard's {name} failed and is off for the rest of the run: {type(error).__name__}: {error}"
            self._note(note)
            logger.error("%s. The training is not touched; please report this.\n%s", note, trace)
        error.__traceback__ = None  # TensorBoard's writer keeps its error, which must not keep the step's frames

    def cannot_write(self, name: str, error: BaseException) -> None:
        """A full disk or a directory that is gone is no fault of memguard's: it is told without a traceback.

        Of all that would write there the recording is told alone.
        """
        if name in self._off:
            return
        told = RECORDING not in self._off
        self._off.add(name)
        self._switched_off(name)
        if told:
            with contextlib.suppress(Exception):  # as in `failed`
                note = f"the {name} stopped: {error}"
                self._note(note)
                logger.warning("memguard: %s. Training goes on untouched, without it.", note)
        error.__traceback__ = None


@final
class _Part:
    """The context of `ComponentHealth.part`."""

    __slots__ = ("_name", "_parts")

    def __init__(self, parts: ComponentHealth, name: str) -> None:
        self._parts, self._name = parts, name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> bool:
        if error is None or not isinstance(error, Exception):
            return False
        self._parts.failed(self._name, error)
        return True
