"""The code around each finding's line, kept in the recording: the page shows it where the file is not at hand."""

from __future__ import annotations

import linecache
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from memguard.records.findings import Finding
from memguard.records.stats import Run, Series
from memguard.sinks.interface import Sink

AROUND: Final = 2
"""Lines before a finding's line, and as many behind it."""
MOST_PLACES: Final = 64
"""Places of which a run keeps the code; findings beyond them have none."""
LONGEST_LINE: Final = 200
"""Characters of a line; with the two above, what is kept stays below 64 KiB of ordinary text."""


@final
class CodeLines(Sink):
    """Notes where findings are, and writes the lines around into the recording.

    The training loop only notes the place. `read`, called on another thread, takes the lines from `linecache`; they are
    written with the next records, or at the end.
    """

    def __init__(self, write: Callable[[str, dict[str, Any]], None]) -> None:
        self._write = write
        self._known: set[tuple[str, int]] = set()
        self._asked: deque[tuple[str, int]] = deque()
        self._read: deque[dict[str, Any]] = deque()

    def finding(self, finding: Finding) -> None:
        """Notes its place."""
        if finding.file is None or finding.line is None or len(self._known) >= MOST_PLACES:
            return
        place = (finding.file, finding.line)
        if place not in self._known:
            self._known.add(place)
            self._asked.append(place)

    def read(self) -> None:
        """Reads the lines around the places that were noted."""
        while self._asked:
            file, line = self._asked.popleft()
            if code := code_around(file, line):
                self._read.append(code)

    def records(self, records: Series, run: Run) -> None:
        """Writes what was read meanwhile."""
        while self._read:
            self._write("code", self._read.popleft())

    def conclude(self, findings: Sequence[Finding]) -> None:
        """Reads and writes what is left: the loop is over."""
        for finding in findings:
            self.finding(finding)
        self.read()
        while self._read:
            self._write("code", self._read.popleft())

    def close(self) -> None:
        """Nothing is left."""


def code_around(file: str, line: int) -> dict[str, Any] | None:
    """Five lines of a file with the one that is asked for in the middle; fewer where the file is shorter.

    Args:
        file: A file as frames name it; also a notebook's cell.
        line: The line, from 1.

    Returns:
        ``file``, ``line``, the number of the ``first`` line and the ``lines`` as text; None where `linecache` has no
        such line.
    """
    lines = linecache.getlines(file)
    if not 1 <= line <= len(lines):
        return None
    first = max(1, min(line - AROUND, len(lines) - 2 * AROUND))
    shown = [each.rstrip()[:LONGEST_LINE] for each in lines[first - 1 : first + 2 * AROUND]]
    return {"file": file, "line": line, "first": first, "lines": shown}
