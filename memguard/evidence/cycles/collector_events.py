"""Start and end of garbage collections, without losing a KeyboardInterrupt, and the probes that hear them."""

from __future__ import annotations

import _thread
import contextlib
import functools
import gc
import sys
from abc import abstractmethod
from collections.abc import Callable, Generator
from typing import Any, final

from memguard.evidence.guarded_hook import log_failure
from memguard.evidence.interface import Probe

_NOTHING = {"generation": 0, "collected": 0, "uncollectable": 0}


@final
class OnCollection:
    """Calls a function as the collector begins and ends, with what a callback of `gc.callbacks` gets.

    What leaves a callback of the collector is lost; and the first Python code to run handles the signal that came while
    the collector did. So the collector calls C here, which hands on to a generator: that wakes up inside of its `try`,
    and a KeyboardInterrupt that meets it there is raised once more when it has gone back to sleep.

    Args:
        heard: What to call, in any thread; an exception of it is logged and ends the calls. Where an interrupt took the
            place of a call, it hears that a collection ended which freed nothing.
    """

    def __init__(self, heard: Callable[[str, dict[str, int]], None]) -> None:
        self._heard = heard
        self._callback: Callable[[object, object], object] | None = None

    def install(self) -> None:
        """Listens to the collector."""
        listener = _listen(self._heard)
        next(listener)
        # C that is called with two arguments, phase and details, and gives both, one after the other, to its key.
        self._callback = callback = functools.partial(max, key=listener.send)
        callback.__module__ = __name__  # whose it is
        gc.callbacks.append(self._callback)

    def remove(self) -> None:
        """Listens no more."""
        if self._callback in gc.callbacks:
            gc.callbacks.remove(self._callback)
        self._callback = None


class CollectorProbe(Probe):
    """A probe that hears the collector begin and end, while installed."""

    _collector: OnCollection | None = None

    def install(self) -> None:
        """Listens to the collector."""
        self._collector = OnCollection(self._on_collection)
        self._collector.install()

    def remove(self) -> None:
        """Listens no more."""
        if self._collector is not None:
            self._collector.remove()

    @abstractmethod
    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        """It begins (``"start"``) or ends (``"stop"``), on any thread, and inside of anything."""


def collects_by_hand() -> bool:
    """Whether the collection of which a probe gets the start was asked for by other code than memguard's.

    Large trainings switch the collector off and call `gc.collect()` at fixed intervals.
    """
    asking = sys._getframe(3)  # below this function, the probe's and `_listen`
    return not str(asking.f_globals.get("__name__")).startswith("memguard.")


def _listen(heard: Callable[[str, dict[str, int]], None]) -> Generator[int, Any, None]:
    phase, is_interrupted = "", False
    while True:
        try:
            while True:
                try:
                    if is_interrupted:
                        phase, is_interrupted = "", False
                        _interrupt_soon()
                        heard("stop", _NOTHING)
                    given = yield 0
                    if type(given) is str:
                        phase = given
                    elif phase:
                        heard(phase, given)
                except KeyboardInterrupt:
                    is_interrupted = True
        except KeyboardInterrupt:  # a second one, on the way
            is_interrupted = True
        except Exception as error:
            log_failure(error)
            heard = _nothing


def _interrupt_soon() -> None:
    """From another thread, which has its turn when the collector has gone on."""
    with contextlib.suppress(RuntimeError):  # too late for threads: the interpreter ends anyway
        _thread.start_new_thread(_thread.interrupt_main, ())


def _nothing(phase: str, info: dict[str, int]) -> None:
    pass
