"""What was made for one batch and still lies there at the next one's peak: read from allocator events."""

from __future__ import annotations

import bisect
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

from memguard.heap.frames import is_user_file

AS_HIGH = 0.95
"""Of the highest peak of some batches: the one that is looked at."""
PARTS = 16
"""Into so many blocks may fall apart what is worth a word."""

Function = tuple[str, str]
"""File and name."""


@final
@dataclass(frozen=True, slots=True)
class LeftOver:
    """Blocks of the batch before that are there at a batch's peak, and go later in it."""

    sizes: frozenset[int]
    bytes: int
    functions: frozenset[Function]
    """The user's functions that ran in a batch, as far as they allocated anything."""


@final
@dataclass(slots=True)
class _Block:
    site: tuple[str, int]
    size: int
    made: int
    """Number of the event."""
    freed: int | None = None


def left_over(trace: Sequence[dict[str, Any]], ends: Sequence[int], *, min_bytes: int) -> LeftOver | None:
    """What was made before the last batch's peak, is there at this one's, and goes while its line makes others anew.

    Args:
        trace: Allocator events in PyTorch's snapshot format, oldest first.
        ends: When the history began and each of its batches ended, in microseconds.
        min_bytes: Least that counts, in all.
    """
    levels = list(itertools.accumulate(map(_change, trace)))
    peaks = _peaks(trace, levels, ends)
    highest = max(levels, default=0)
    high = [n for n, peak in enumerate(peaks) if n and peak is not None and levels[peak] >= AS_HIGH * highest]
    if not high or (before := peaks[high[-1] - 1]) is None or (now := peaks[high[-1]]) is None:
        return None
    blocks = list(_blocks(trace, max(min_bytes // PARTS, 1)))
    old = [block for block in blocks if block.made < before and block.freed is not None and block.freed > now]
    if sum(block.size for block in old) < min_bytes:
        return None
    kept, anew = Counter(block.site for block in old), Counter[tuple[str, int]]()
    last = {block.site: block.freed or 0 for block in sorted(old, key=lambda block: block.freed or 0)}
    anew.update(block.site for block in blocks if before < block.made < last.get(block.site, 0))
    old = [block for block in old if anew[block.site] >= kept[block.site]]
    nbytes = sum(block.size for block in old)
    if nbytes < min_bytes:
        return None
    return LeftOver(frozenset(block.size for block in old), nbytes, frozenset(_ran(trace[before : now + 1])))


def _peaks(trace: Sequence[dict[str, Any]], levels: Sequence[int], ends: Sequence[int]) -> list[int | None]:
    """The event of each batch that reaches its highest level."""
    times = [int(event.get("time_us", 0)) for event in trace]
    cuts = [bisect.bisect_right(times, end) for end in ends]
    spans = (range(first, last) for first, last in itertools.pairwise(cuts))
    return [max(span, key=levels.__getitem__, default=None) for span in spans]


def _blocks(trace: Sequence[dict[str, Any]], min_bytes: int) -> Iterator[_Block]:
    """The large blocks that a line of the user's made."""
    alive: dict[int, _Block] = {}
    for number, event in enumerate(trace):
        action, address, size = event.get("action"), event.get("addr", 0), int(event.get("size", 0))
        if action == "alloc" and size >= min_bytes:
            site = next(_user_frames(event), None)
            if site is not None:
                alive[address] = _Block((site[0], site[1]), size, number)
                yield alive[address]
        elif action in ("free_requested", "free") and address in alive:
            alive.pop(address).freed = number


def _ran(events: Iterable[dict[str, Any]]) -> Iterator[Function]:
    for event in events:
        if event.get("action") == "alloc":
            for file, _, name in _user_frames(event):
                yield file, name


def _user_frames(event: dict[str, Any]) -> Iterator[tuple[str, int, str]]:
    """The lines of the user's on an event's stack, innermost first."""
    for frame in event.get("frames") or ():
        name = str(frame.get("filename", ""))
        if name and not name.startswith("??") and is_user_file(name):
            yield name, int(frame.get("line", 0)), str(frame.get("name", ""))


def _change(event: dict[str, Any]) -> int:
    size = int(event.get("size", 0))
    return {"alloc": size, "free_requested": -size}.get(str(event.get("action")), 0)
