"""A trace of allocator events read as blocks: what was alive when, which line made it, and what the peak would be."""

from __future__ import annotations

import bisect
import functools
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, final

from memguard.allocator.snapshot import Frame, Stack

_FREED = frozenset({"free_requested", "free_completed", "free"})
_WRAPPERS = tuple(
    os.path.join("torch", *path) for path in (("functional.py",), ("nn", "functional.py"), ("utils", "_device.py"))
)
"""What runs between a line and the operator that it calls; the last one under a default device."""


@final
@dataclass(slots=True, eq=False)
class Block:
    """A block that was made in the trace."""

    size: int
    made: int
    """Number of the event."""
    freed: int | None = None
    """Number of the event; None where it is alive at the end."""

    def is_alive(self, event: int) -> bool:
        """Whether it is there after an event."""
        return self.made <= event and (self.freed is None or self.freed > event)


class Peak(NamedTuple):
    """The most that was allocated, more than at the beginning of the trace."""

    bytes: int
    event: int
    """Number of the event that reached it first; 0 where nothing was allocated."""


@final
class AllocationTimeline:
    """All that is asked of a trace; stacks are read when they are asked for.

    Args:
        trace: Allocator events in PyTorch's snapshot format, oldest first.
        is_user: Whether a file is the user's own.

    Attributes:
        blocks: All that were made in the trace, in their order.
    """

    def __init__(self, trace: Sequence[Mapping[str, Any]], *, is_user: Callable[[str], bool]) -> None:
        self._trace, self._is_user = trace, functools.cache(is_user)
        self.blocks: list[Block] = []
        self._made: dict[int, Block] = {}
        self._changes = [0] * len(trace)
        self._stacks: dict[int, Stack] = {}
        alive: dict[int, Block] = {}
        for number, event in enumerate(trace):
            action, address, size = event.get("action"), event.get("addr", 0), int(event.get("size", 0))
            if action == "alloc":
                lost = alive.get(address)
                if lost is not None:  # the trace does not tell how it went
                    lost.freed = number
                alive[address] = self._made[number] = Block(size, number)
                self.blocks.append(alive[address])
                self._changes[number] = size - (lost.size if lost is not None else 0)
            elif action in _FREED and address in alive:
                block = alive.pop(address)
                block.freed, self._changes[number] = number, -block.size
            elif action in _FREED and action != "free_completed":
                self._changes[number] = -size  # it was there before the trace began

    def __len__(self) -> int:
        """The number of events."""
        return len(self._trace)

    def onwards(self, event: int) -> Iterator[int]:
        """The events from one on that made a block."""
        for index in range(self._index(event), len(self.blocks)):
            yield self.blocks[index].made

    def changes(self) -> Iterator[tuple[Block, int]]:
        """Each block as it is made and as it goes, in order, with the number of the event."""
        gone = {block.freed: block for block in self.blocks if block.freed is not None}
        for number in range(len(self)):
            if (block := gone.get(number)) is not None:
                yield block, number
            if (block := self._made.get(number)) is not None:
                yield block, number

    def levels(self, without: Mapping[Block, int] | None = None) -> list[int]:
        """Allocated bytes after each event, more than at the beginning.

        Args:
            without: Blocks that are thought to go at an earlier event, each with that event.
        """
        changes = self._changes
        if without:
            changes = list(changes)
            for block, gone in without.items():
                if block.freed is None or gone < block.freed:
                    changes[gone] -= block.size
                    if block.freed is not None:
                        changes[block.freed] += block.size
        return list(itertools.accumulate(changes))

    def peak(self, without: Mapping[Block, int] | None = None) -> Peak:
        """The highest level, and where it is reached, also where some blocks had gone earlier: see `levels`."""
        levels = self.levels(without)
        at = max(self._made, key=levels.__getitem__, default=0)
        return Peak(levels[at], at) if levels and levels[at] > 0 else Peak(0, 0)

    def stack(self, event: int) -> Stack:
        """The Python frames of an event, innermost first; none of a backward in a thread of its own."""
        if event not in self._stacks:
            self._stacks[event] = tuple(_frame(each) for each in self._frames(event))
        return self._stacks[event]

    def user_line(self, event: int) -> Frame | None:
        """The innermost line of the user's own on an event's stack."""
        return next((_frame(each) for each in self._frames(event) if self._is_user(each["filename"])), None)

    def calling_lines(self, event: int) -> Stack:
        """The user's lines that led to an event's operator, innermost first; none where a library called it."""
        lines: list[Frame] = []
        for each in self._frames(event):
            if self._is_user(each["filename"]):
                lines.append(_frame(each))
            elif lines or not each["filename"].endswith(_WRAPPERS):
                break
        return tuple(lines)

    def is_one_run(self, line: Frame, first: int, last: int) -> bool:
        """Whether one of the user's lines did not return between two events, as far as anything was allocated."""
        for event in self.onwards(first):
            if event > last:
                break
            if not any(each.get("line") == line.line and _frame(each) == line for each in self._frames(event)):
                return False
        return True

    def _frames(self, event: int) -> Iterator[Mapping[str, Any]]:
        for each in self._trace[event].get("frames") or ():
            if each.get("filename") and not each["filename"].startswith("??"):
                yield each

    def _index(self, event: int) -> int:
        """The place in `blocks` of the first that was not made before an event."""
        return bisect.bisect_left(self.blocks, event, key=lambda block: block.made)


def _frame(raw: Mapping[str, Any]) -> Frame:
    return Frame(raw["filename"], int(raw.get("line", 0)), str(raw.get("name", "")))
