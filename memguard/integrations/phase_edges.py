"""Where the program's phases begin and end, for whoever acts there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import final

from memguard.phases import Path


@final
class PhaseEdges:
    """Hears of the outermost phases of one thread: those within them have the memory of the same work.

    Args:
        act: Called at each beginning and each end that no exception made. Never raises.
    """

    def __init__(self, act: Callable[[], object]) -> None:
        self._act, self._thread = act, threading.get_ident()

    def phase_start(self, path: Path) -> object:
        """A phase begins; whether its end counts too."""
        counts = len(path) == 1 and threading.get_ident() == self._thread
        if counts:
            self._act()
        return counts

    def phase_end(self, started: object, error: str | None) -> None:
        """It ends."""
        if started and error is None:
            self._act()
