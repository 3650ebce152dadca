"""Blocks that were freed while other streams may still use them, and the events they wait for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import final

from memguard.allocator.blocks import Block
from memguard.allocator.pools import PrivatePool


@final
class StreamEvents:
    """The events that end the use of freed blocks by other streams (C++: ``cuda_events``).

    Args:
        free_block: Called with each block whose events are all done.
        pending: Events stay unfinished until ``synchronize``; else they finish at once, and are seen at the next look.
    """

    def __init__(self, free_block: Callable[[Block], None], *, pending: bool) -> None:
        self._free_block = free_block
        self._pending = pending
        self.queues: dict[int, deque[tuple[Block, int]]] = {}
        """Per stream the blocks that wait, each with the number of its event; without a stream where none waits."""
        self._recorded = 0
        self._done = 0
        self._deferred: list[Block] = []

    def insert(self, block: Block) -> None:
        """Records an event on every stream that uses a block (C++: ``insert_events``)."""
        for stream in sorted(block.stream_uses or ()):
            self._recorded += 1
            block.event_count += 1
            self.queues.setdefault(stream, deque()).append((block, self._recorded))
        block.stream_uses = None

    def defer(self, block: Block) -> None:
        """Keeps a block whose events cannot be recorded during a capture (C++: ``needs_events_deferred``)."""
        self._deferred.append(block)

    def insert_deferred(self) -> None:
        """Records the events of the blocks kept back, at the end of the capture."""
        deferred, self._deferred = self._deferred, []
        for block in deferred:
            self.insert(block)

    def synchronize(self) -> None:
        """Lets every event recorded so far be done; the blocks are freed at the next look."""
        self._done = self._recorded

    def process(self) -> None:
        """Frees the blocks whose events are done (C++: ``process_events``).

        Streams are visited in the order of their first waiting event; PyTorch's order is that of a hash map.
        """
        done = self._done if self._pending else self._recorded
        for stream, queue in list(self.queues.items()):
            while queue and queue[0][1] <= done:
                self._finish(queue.popleft()[0])
            if not queue:
                del self.queues[stream]

    def finish_all(self, private: PrivatePool | None) -> None:
        """Waits for the events of one private pool's blocks, or of all (C++: ``synchronize_and_free_events``)."""
        for stream, queue in list(self.queues.items()):
            kept: deque[tuple[Block, int]] = deque()
            for block, number in queue:
                if private is None or block.pool.private is private:
                    self._finish(block)
                else:
                    kept.append((block, number))
            if kept:
                self.queues[stream] = kept
            else:
                del self.queues[stream]

    def complete(self, address: int) -> None:
        """Ends the wait of the block at an address now.

        Raises:
            KeyError: No block waits there.
        """
        block = next((block for block in self.waiting() if block.ptr == address), None)
        if block is None:
            raise KeyError(f"no freed block waits for a stream at address {address:#x}")
        for stream, queue in list(self.queues.items()):
            self.queues[stream] = kept = deque(entry for entry in queue if entry[0] is not block)
            if not kept:
                del self.queues[stream]
        self._deferred = [other for other in self._deferred if other is not block]
        block.stream_uses, block.event_count = None, 0
        self._free_block(block)

    def waiting(self) -> list[Block]:
        """The blocks that no tensor owns and other streams may still use."""
        blocks = {block.ptr: block for queue in self.queues.values() for block, _ in queue}
        return [*blocks.values(), *self._deferred]

    def _finish(self, block: Block) -> None:
        block.event_count -= 1
        if block.event_count == 0:
            self._free_block(block)
