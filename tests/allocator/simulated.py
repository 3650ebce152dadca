"""The simulated allocator, driven by the operations that the real one is driven by."""

from __future__ import annotations

from typing import Any

from memguard.allocator import CachingAllocator, OutOfMemory
from tests.allocator.operations import Event, Operation, Run, comparable_segments

BASE = 1 << 44
"""Where the addresses of the null GPU begin, and those of the simulated driver."""


class Simulated:
    """An ``Executor`` over ``CachingAllocator``; addresses are relative to the first that its driver hands out."""

    def __init__(self, run: Run) -> None:
        self._events: list[Event] = []
        self.allocator = CachingAllocator(
            run.total_gib << 30, run.conf, pending=run.mode == "pending", on_event=self._note
        )
        self._addresses: list[int | None] = []
        self._options = run.pool_options
        self._pools = [] if self._options is None else [self.allocator.create_pool(**self._options)]

    def _note(self, action: str, address: int, size: int, stream: int) -> None:
        self._events.append((action, address if action == "oom" else address - BASE, size, stream))

    def apply(self, operation: Operation) -> int | str | None:
        name, *arguments = operation
        if name == "malloc":
            return self._malloc(*arguments)
        if name in ("free", "record_stream"):
            address = self._addresses[arguments[0]]
            if address is not None:
                getattr(self.allocator, name)(address, *arguments[1:])
        elif name == "renew_pool":
            self.allocator.release_pool(self._pools[-1])
            self.allocator.empty_cache(self._pools[-1])
            self._pools.append(self.allocator.create_pool(**(self._options or {})))
        else:
            method = {
                "reset_peak": "reset_peak_stats",
                "reset_accumulated": "reset_accumulated_stats",
                "set_fraction": "set_memory_fraction",
            }.get(name, name)
            getattr(self.allocator, method)(*arguments)
        return None

    def _malloc(self, nbytes: int, stream: int, pool: int) -> int | str:
        try:
            address = self.allocator.malloc(nbytes, stream, self._pools[-1] if pool else (0, 0))
        except OutOfMemory as error:
            self._addresses.append(None)
            return str(error)
        self._addresses.append(address or None)
        return address - BASE if address else 0

    def stats(self) -> dict[str, int]:
        return self.allocator.stats()

    def segments(self) -> list[Any]:
        return comparable_segments(self.allocator.snapshot()["segments"], BASE, self._pools)

    def events(self) -> list[Event]:
        return self._events
