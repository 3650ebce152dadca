"""The line of the user's code that runs now: file, line and function."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Iterable
from types import FrameType

from memguard.heap.frames import user_frames
from memguard.records.facts import NOWHERE, Place


def call_site(frame: FrameType | None = None) -> Place:
    """Where the user's innermost function stands at this moment; nowhere if no code of the user's is running."""
    for found in user_frames(sys._getframe(1) if frame is None else frame):
        return place_of(found)
    return NOWHERE


def place_of(frame: FrameType) -> Place:
    """A frame's current line as a place."""
    code = frame.f_code
    return Place(file=code.co_filename, line=frame.f_lineno, function=str(getattr(code, "co_qualname", code.co_name)))


def find_call(site: Place, *functions: str, below: bool = False, above: bool = False, text: str = "") -> Place | None:
    """The line near a place that calls a function of one of these names; None without one.

    Args:
        site: Where to begin.
        *functions: Names, the last part of a dotted one.
        below: Whether only lines below the place count; else those above come after them.
        above: Whether those above come first, the nearest before all.
        text: What else the line contains.
    """
    if site.file is None or site.line is None:
        return None
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, functions))})\s*\(")
    lines = linecache.getlines(site.file)
    before = () if below else range(min(site.line, len(lines)) - 1, -1, -1)
    after = range(site.line, len(lines))
    for index in (*before, *after) if above else (*after, *before):
        code = lines[index].partition("#")[0]
        if pattern.search(code) and text in code and not code.lstrip().startswith("def "):
            return Place(file=site.file, line=index + 1, function=site.function, source=code.strip())
    return None


def find_only_call(files: Iterable[str], function: str) -> Place | None:
    """The line that calls a function, if just one line of some files does: where an object comes from.

    Args:
        files: The files.
        function: The function's or class's name, the last part of a dotted one.
    """
    pattern, found = re.compile(rf"(?<!class )(?<!def )\b{re.escape(function)}\s*\("), []
    for file in files:
        for number, line in enumerate(linecache.getlines(file), 1):
            if pattern.search(code := line.partition("#")[0]):
                found.append(Place(file=file, line=number, source=code.strip()))
    return found[0] if len(found) == 1 else None
