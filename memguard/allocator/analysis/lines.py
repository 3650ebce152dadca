"""Which line of the user's own code a stack belongs to, and bytes summed up by such lines."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, final

from memguard.allocator.snapshot import Frame, Stack
from memguard.text.terminal import one_line

_PYTHON_FILE = re.compile(r"\.pyw?$|^<ipython-input|^<stdin>$|ipykernel_\d+|^<string>$")
_LIBRARY = re.compile(
    r"[/\\](site|dist)-packages[/\\]"
    r"|[/\\]lib(64)?[/\\]python\d(\.\d+)?[/\\]|[/\\]Lib[/\\](?!site)|^<(frozen|string|__array)"
    r"|[/\\]torch[/\\](_\w+|amp|autograd|cuda|distributed|func|fx|nn|optim|utils|\w+\.py$)"
)
_MEMGUARD = re.compile(r"[/\\]memguard[/\\]((backends|guards|integrations|evidence)[/\\]|(launch|recorder)\.py$)")
"""Its calls around the user's and torch's: never what allocated."""
_TORCH = re.compile(
    r"[/\\]torch[/\\]|[/\\]torch_?\w*\.py$|[/\\]lib(64)?[/\\]python\d(\.\d+)?[/\\](?!(site|dist)-packages)"
)


class Line(NamedTuple):
    """A line of code; without a file where no Python frame was recorded."""

    file: str | None
    line: int | None
    function: str | None

    def __str__(self) -> str:
        if self.file is None:
            return one_line(self.function or UNKNOWN)
        return one_line(f"{self.file}:{self.line} in {self.function}")  # a stranger's file may hold ends of lines


UNKNOWN = "(no stack recorded)"
BACKWARD = Line(None, None, "(backward pass: autograd's thread has no Python frames)")
NATIVE = Line(None, None, "(C++ only, no Python frame)")
NO_STACK = Line(None, None, UNKNOWN)
EARLIER = Line(None, None, "(allocated before the history begins)")


@dataclass(frozen=True, slots=True, kw_only=True)
class LineBytes:
    """What one line allocated."""

    file: str | None
    line: int | None
    function: str | None
    """Of the line; without a file, what is known instead."""
    bytes: int
    count: int

    @property
    def where(self) -> str:
        """The line as text."""
        return str(Line(self.file, self.line, self.function))


@final
class Lines:
    """Finds the lines of stacks; of a stack seen before, at once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Stack, Line]] = {}

    def of(self, stack: Stack) -> Line:
        """The innermost line of the user's own code, else of a library other than torch, else of torch."""
        known = self._known.get(id(stack))
        if known is None:
            known = self._known[id(stack)] = (stack, _line_of(stack))
        return known[1]


def _line_of(stack: Stack) -> Line:
    if not stack:
        return NO_STACK
    python = [frame for frame in stack if _PYTHON_FILE.search(frame.filename) and not _MEMGUARD.search(frame.filename)]
    for kind in (_is_own, _is_library, _is_python):
        for frame in python:
            if kind(frame):
                return Line(frame.filename, frame.line, frame.name)
    if any("torch::autograd::Engine" in frame.name for frame in stack):
        return BACKWARD
    return NATIVE


def _is_own(frame: Frame) -> bool:
    return _LIBRARY.search(frame.filename) is None


def _is_library(frame: Frame) -> bool:
    return _TORCH.search(frame.filename) is None


def _is_python(frame: Frame) -> bool:
    return True


def top_lines(amounts: Iterable[tuple[Line, int]], top: int) -> tuple[LineBytes, ...]:
    """The lines with the most bytes, the largest first."""
    total: dict[Line, int] = {}
    count: dict[Line, int] = {}
    for line, nbytes in amounts:
        total[line] = total.get(line, 0) + nbytes
        count[line] = count.get(line, 0) + 1
    largest = sorted(total, key=lambda line: (-total[line], str(line)))[:top]
    return tuple(
        LineBytes(file=line.file, line=line.line, function=line.function, bytes=total[line], count=count[line])
        for line in largest
    )
