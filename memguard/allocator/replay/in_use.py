"""The blocks of a replay that are in use, by the addresses that they had in the recording."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Final, final

from memguard.allocator.caching import CachingAllocator
from memguard.allocator.replay.state import ActiveBlock

_WAITS: Final = -1
"""The stream that a freed block waits for; a trace does not tell which one it was."""


@final
class BlocksInUse:
    """Blocks held, and blocks freed whose streams are waited for; in the simulator they may lie elsewhere."""

    def __init__(self, allocator: CachingAllocator, blocks: Iterable[ActiveBlock] = ()) -> None:
        self._allocator = allocator
        self.held: dict[int, int] = {}
        """Recorded address -> the simulator's."""
        self.waiting: dict[int, int] = {}
        for block in blocks:
            (self.held if block.allocated else self.waiting)[block.address] = block.address

    def free(self, address: int, *, done: bool) -> None:
        """Frees a block, if it is known; without `done` it waits for its streams."""
        held = self.held.pop(address, None)
        if held is None:
            return
        if not done:
            self._allocator.record_stream(held, _WAITS)
            self.waiting[address] = held
        self._allocator.free(held)

    def complete(self, address: int) -> None:
        """The wait of a block is over."""
        waiting = self.waiting.pop(address, None)
        if waiting is not None:
            with contextlib.suppress(KeyError):  # the simulator has waited for all streams by itself, in a retry
                self._allocator.complete_events(waiting)
