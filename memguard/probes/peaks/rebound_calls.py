"""Large tensors that a function gives back while its caller still has the last one, read from allocator events."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

from memguard.facts import Place
from memguard.heap.frames import is_user_file
from memguard.source.stores import Rebinding, gives_back, rebinding_at

ALIKE = 0.75
"""How near the sizes of the old and the new one are."""
AS_HIGH = 0.99
"""Of the highest level of some batches: the peaks."""

_BETWEEN = (("functional.py",), ("nn", "functional.py"), ("utils", "_device.py"))
_WRAPPERS = tuple(os.path.join("torch", *path) for path in _BETWEEN)
"""What runs between a user's line and the operator that it calls."""

Site = tuple[str, int, str]
"""File, line, function."""


@final
@dataclass(slots=True)
class _Block:
    site: Site
    direct: bool
    """Whether the line itself made it, and no function that it calls."""
    size: int
    made: int
    """Number of the event."""
    run: int
    """Which run of the line's statement."""


@final
@dataclass(frozen=True, slots=True)
class Doubled:
    """Two of one line at the peak."""

    site: Site
    name: str
    source: str
    bytes: int
    keeper: Place | None
    """The attribute that kept the old one; None where the name itself did."""


def doubled_at_peak(trace: list[dict[str, Any]], *, min_bytes: int) -> list[Doubled]:
    """Lines whose old tensor was there at the peak, beside the new one, and went when the name or a keeper was set.

    Args:
        trace: Allocator events in PyTorch's snapshot format, oldest first.
        min_bytes: Smallest tensor that counts.
    """
    levels = list(itertools.accumulate(map(_change, trace)))
    highest = max(levels, default=0)
    from_call, statement = functools.cache(gives_back), functools.cache(rebinding_at)
    alive: dict[int, _Block] = {}
    runs: dict[Site, int] = {}
    """Of the lines that the last allocation came from: allocations without another's between them are one run."""
    number = itertools.count()
    found: dict[Site, Doubled] = {}
    for now, event in enumerate(trace):
        action, address, size = event.get("action"), event.get("addr", 0), int(event.get("size", 0))
        if action == "alloc":
            frames = event.get("frames") or ()
            runs = {site: runs[site] if site in runs else next(number) for site in _lines(frames)}
            sites = list(_makers(frames)) if size >= min_bytes else []
            if sites:
                at = next((n for n, site in enumerate(sites) if not from_call(*site[:2])), None)
                if at is not None:
                    alive[address] = _Block(sites[at], not at, size, now, runs[sites[at]])
        elif action == "free_requested" and address in alive:
            old = alive.pop(address)
            if old.site in found:
                continue
            others = [block for block in alive.values() if block.site == old.site]
            if len(others) != 1 or not _follows(others[0], old):
                continue  # of several that are kept, one more is no second one
            new = others[0]
            if max(levels[new.made : now + 1]) >= AS_HIGH * highest:
                told = _told(old, statement(*old.site[:2]), runs, goes_on=runs.get(new.site) == new.run)
                if told is not None:
                    found[old.site] = told
    return list(found.values())


def _follows(new: _Block, old: _Block) -> bool:
    """Whether a later run of the line made one of that size."""
    return new.made > old.made and new.run != old.run and ALIKE * old.size <= new.size <= old.size / ALIKE


def _told(old: _Block, about: Rebinding | None, runs: dict[Site, int], *, goes_on: bool) -> Doubled | None:
    if about is None:
        return None
    file, line, function = old.site
    keeper = about.keeper
    if keeper is not None:
        # No allocation since then is of a line outside: it was the keeper's statement that let the old one go.
        last = [site[1] for site in runs if (site[0], site[2]) == (file, function)]
        if not any(line <= number <= (keeper.line or 0) for number in last):
            return None
    elif old.direct or not goes_on or not about.doubles:
        return None
    return Doubled(old.site, about.name, about.source, old.size, keeper)


def _lines(frames: Any) -> Iterator[Site]:
    """All lines of the user's in a stack."""
    for frame in frames:
        name = str(frame.get("filename", ""))
        if name and not name.startswith("??") and is_user_file(name):
            yield name, int(frame.get("line", 0)), str(frame.get("name", ""))


def _makers(frames: Any) -> Iterator[Site]:
    """The user's lines that call an operator, innermost first, up to a library; none where a library calls it."""
    begun = False
    for frame in frames:
        name = str(frame.get("filename", ""))
        if not name or name.startswith("??"):
            continue
        if is_user_file(name):
            begun = True
            yield name, int(frame.get("line", 0)), str(frame.get("name", ""))
        elif begun or not name.endswith(_WRAPPERS):
            return


def _change(event: dict[str, Any]) -> int:
    size = int(event.get("size", 0))
    return {"alloc": size, "free_requested": -size}.get(str(event.get("action")), 0)
