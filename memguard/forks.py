"""Detects a forked child without a system call."""

from __future__ import annotations

import os
from typing import Final, final


@final
class _Process:
    """This process.

    Attributes:
        pid: Its number, as `os.getpid` tells it; in a forked child the child's.
    """

    __slots__ = ("pid",)

    def __init__(self) -> None:
        self.look()

    def look(self) -> None:
        """Asks for the number; called after a fork."""
        self.pid = os.getpid()


process: Final = _Process()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=process.look)
