"""Private memory of the child processes: DataLoader workers, whose copies of the dataset grow with each access."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, final

import psutil

from memguard.clocks import monotonic

_SHARE = 0.01


class Children(NamedTuple):
    """The children of this process; None is unknown."""

    number: int | None = None
    private_bytes: int | None = None


@final
class ChildrenMemory:
    """The private memory of all children together, read at its own pace.

    What a forked worker shares with its parent is not counted: pages copied on write are what grows, and only
    ``smaps_rollup`` tells them apart. That takes the kernel milliseconds a worker, so a reading is repeated only after
    a hundred times its own duration.
    """

    def __init__(self, *, proc: Path = Path("/proc"), clock: Callable[[], float] = monotonic) -> None:
        self._proc, self._clock = proc, clock
        self._last = Children()
        self._pids: frozenset[int] | None = None
        self._again = 0.0

    def read(self) -> Children:
        """The newest reading; a new one if it is time, or if children came or went."""
        began = self._clock()
        pids = self._child_pids()
        if pids is None:
            return Children()
        if pids == self._pids and began < self._again:
            return self._last
        sizes = [size for pid in pids if (size := self._private_bytes(pid)) is not None]
        self._last = Children(len(pids), sum(sizes) if sizes or not pids else None)
        self._pids = pids
        ended = self._clock()
        self._again = ended + (ended - began) / _SHARE
        return self._last

    def _child_pids(self) -> frozenset[int] | None:
        """Process ids of the children; from the kernel's own list where it keeps one: psutil looks at all."""
        pids: set[int] = set()
        try:
            for task in os.listdir(self._proc / "self" / "task"):
                try:
                    pids.update(map(int, (self._proc / "self" / "task" / task / "children").read_bytes().split()))
                except ProcessLookupError:
                    pass  # a thread that ended meanwhile
            return frozenset(pids)
        except (OSError, ValueError):  # no Linux, or a kernel without that list: psutil is asked next
            pass
        try:
            return frozenset(child.pid for child in psutil.Process().children())
        except (psutil.Error, OSError):  # psutil lists /proc as well
            return None

    def _private_bytes(self, pid: int) -> int | None:
        try:
            lines = (self._proc / str(pid) / "smaps_rollup").read_bytes().splitlines()
            return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Private_"))
        except (OSError, IndexError, ValueError):
            pass  # an old kernel, or the worker ended meanwhile: psutil is asked next
        try:
            memory = psutil.Process(pid).memory_info()
        except (psutil.Error, OSError):  # the worker ended meanwhile, or is not ours to read
            return None
        return int(memory.rss - getattr(memory, "shared", 0))
