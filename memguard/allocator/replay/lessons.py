"""What the first mismatch of a replay teaches about the state in which its trace began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import final

from memguard.allocator.replay.causes import GIVES
from memguard.allocator.snapshot import TraceEntry


@dataclass(frozen=True, slots=True)
class Misplaced:
    """The first allocation that got another address than recorded."""

    address: int
    """Where the simulator put it."""
    room: int
    """Size of the free block that it took."""
    size: int
    """What it needed."""


@final
@dataclass(slots=True)
class Lessons:
    """What one run showed; each lesson changes the state from which the next one begins."""

    misplaced: Misplaced | None = None
    kept: list[int] = field(default_factory=list)
    """Segments that the simulator gave back, and PyTorch kept."""
    kept_at: int = 0
    """The event at which it did."""

    def learn_tail(self, sizes: Mapping[int, int], guessed: Set[int], tails: dict[int, int]) -> bool:
        """Finds a tail that explains the misplaced allocation, and adds it to the tails; False if there is none.

        A free block that the simulator took and PyTorch did not was too small in truth: the block before it, whose
        size is a guess, has a tail.
        """
        first = self.misplaced
        if first is None:
            return False
        for address in guessed | tails.keys():
            if address + sizes[address] == first.address:
                tail = tails.get(address, 0) + first.room - first.size + 512
                if tail > 1 << 20:
                    return False
                tails[address] = tail
                return True
        return False

    def learn_private(self, trace: Sequence[TraceEntry], private: set[int]) -> bool:
        """Adds the events that gave back memory of private pools, as far as the run showed them; False if none.

        Before torch 2.10 a trace does not tell pools. Memory that was free and kept, although all cached memory was
        given back, belongs to a private pool: a CUDA graph's, say.
        """
        found = set()
        for address in self.kept:
            for at in range(self.kept_at, len(trace)):
                entry = trace[at]
                if entry.action in GIVES and 0 <= address - entry.address < entry.size:
                    if entry.pool is None:
                        found.add(at)
                    break
        new = found - private
        private |= new
        return bool(new)
