"""The last guard at the front doors: exceptions of memguard itself end here, and interrupts leave nothing behind."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from memguard.torch_objects.hidden_hooks import skipped_by_dynamo

logger = logging.getLogger("memguard")

MethodT = TypeVar("MethodT", bound=Callable[..., Any])


def shielded(method: MethodT) -> MethodT:
    """A method that the host's loop calls: it answers None instead of raising an exception of memguard's own.

    Its object has a method ``part_failed(name, error)``, which tells of the failure once and keeps no error.
    """

    @functools.wraps(method)
    def shield(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            if type(error).__name__ == "OutOfMemoryError":
                raise  # what is there already does not fit the virtual device: the user's business
            end_here(self, method.__name__, error)
            return None

    return skipped_by_dynamo(shield)  # type: ignore[return-value]


def take_away(removals: list[Callable[[], object]]) -> None:
    """Calls all of them, the last one first; none is left out where an interrupt comes in between.

    Args:
        removals: Emptied. Each does nothing where it is called twice: one that an interrupt stops is called once more.

    Raises:
        BaseException: What one of them raised, after the others.
    """
    remove: Callable[[], object] = list
    try:
        while removals:
            remove = removals.pop()
            remove()
    except BaseException:
        try:
            remove()
        finally:
            take_away(removals)
        raise


def end_here(host: Any, name: str, error: Exception) -> None:
    """Where an exception of memguard's own ends; for methods of every batch, which spell out what `shielded` does."""
    try:
        host.part_failed(name, error)
    except Exception:
        logger.error("memguard's %s failed: %s", name, type(error).__name__)
