"""A hook that stays behind when the model is copied or saved, and whose failure ends in it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from typing import Any, final

from torch import nn

from memguard.module_parts import parts_of
from memguard.probes.transforms import compiler, is_traced

_log = logging.getLogger("memguard")


def log_failure(error: Exception) -> None:
    """Says that a hook failed, where nobody else is told."""
    _log.error("memguard: one of its hooks failed and is off: %s", type(error).__name__)


class Inert:
    """A hook that becomes inert where the model is copied or pickled.

    There it turns into the __exit__ of a contextlib.nullcontext, which takes three arguments and answers None: a copy
    of the model reports nothing to this run, and its pickle loads where memguard is not installed.

    A subclass has the __call__ that torch calls. It is to do nothing inside a graph that is being compiled, so that it
    breaks none, and begins with that question; for it can be traced itself.

    Args:
        call: What to call; an exception of it never reaches torch, and ends the calls.
        failed: Told of that exception; must not keep it.
    """

    __slots__ = ("_call", "_failed")

    def __init__(self, call: Callable[..., None], failed: Callable[[Exception], None] = log_failure) -> None:
        self._call, self._failed = call, failed

    def hand_on(self, *args: Any) -> None:
        """Calls."""
        try:
            self._call(*args)
        except Exception as error:
            self.end(error)

    def end(self, error: Exception) -> None:
        """It failed: the last that is heard of it."""
        failed = self._failed
        self.stop()
        with contextlib.suppress(Exception):  # nobody is left to tell, and the forward goes on
            failed(error)

    def stop(self) -> None:
        """From now on it does nothing, and holds nothing."""
        self._call, self._failed = _nothing, log_failure

    def take_off(self, model: nn.Module) -> None:
        """Stops, and leaves the parts of a model to which it was copied: quantization does so for what it replaces."""
        mine: object = self
        self.stop()
        for part in parts_of(model):
            for hooks in (part._forward_hooks, part._forward_pre_hooks):
                for number in [number for number, hook in hooks.items() if hook is mine]:
                    del hooks[number]

    def __deepcopy__(self, memo: object) -> Callable[..., None]:
        return contextlib.nullcontext().__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")


@final
class Hook(Inert):
    """Calls a function of memguard's from a hook of torch's."""

    __slots__ = ()

    def __call__(self, *args: Any) -> None:
        """What torch calls."""
        if not (is_traced() or compiler._is_compiling_flag):
            try:
                self._call(*args)
            except Exception as error:
                self.end(error)


def _nothing(*args: object) -> None:
    pass
