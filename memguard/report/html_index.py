"""A recording's rows by window, without reading all of it twice: an index that grows with the file. No torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np

from memguard.recording.format import HEADER_BYTES, parse_header, record_type
from memguard.report.html_rows import MARKS, ROW, Rows, decimate, normalise, notable

BLOCK = 64
"""Records that one block of the index stands for."""
_CHUNK = 1 << 15


@final
class RowIndex:
    """One recording's rows by window, from an index that grows with the file and reads only what was appended.

    For every 64 records it keeps five of them (the first and the notable ones): 10 MiB for a million batches.

    Args:
        read: ``read(offset, size)`` gives the file's bytes there, fewer at its end.
        source: What to call the file in an error.

    Raises:
        RecordingError: Not a recording, or of a newer format.
    """

    def __init__(self, read: Callable[[int, int], bytes], source: str) -> None:
        header = parse_header(read(0, HEADER_BYTES), source)
        self._read, self._kind = read, record_type(header)
        self.stages: list[str] = header["stages"]
        self.count = 0
        """Whole records seen."""
        self.stage_counts: dict[int, int] = {}
        """Records of each stage, by its code."""
        self._kept: list[Rows] = []
        self._firsts: list[Rows] = []
        self._changes: list[Rows] = []
        self._marks: dict[str, list[Rows]] = {name: [] for name in MARKS}
        self._tail = np.empty(0, dtype=ROW)
        self._last_stage = -1

    def refresh(self, size: int) -> bool:
        """Reads what was appended.

        Args:
            size: The file's size now, in bytes; a torn last record is left for later.

        Returns:
            Whether there were new records.
        """
        total = max(0, (size - HEADER_BYTES) // self._kind.itemsize)
        before = self.count
        while self.count < total:
            fresh = self.rows(self.count, min(total, self.count + _CHUNK))
            if not len(fresh):
                break
            self._add(fresh)
        return self.count != before

    def _add(self, fresh: Rows) -> None:
        """Takes appended rows into the index."""
        for code, times in zip(*np.unique(fresh["stage"], return_counts=True), strict=True):
            self.stage_counts[int(code)] = self.stage_counts.get(int(code), 0) + int(times)
        changed = np.flatnonzero(np.diff(fresh["stage"], prepend=self._last_stage))
        if len(changed):
            self._changes.append(fresh[changed])
        self._last_stage = int(fresh["stage"][-1])
        for name, batches in self._marks.items():
            marked = fresh[name] > 0
            if marked.any():
                batches.append(fresh["batch"][marked])
        self.count += len(fresh)
        rows = np.concatenate([self._tail, fresh]) if len(self._tail) else fresh
        whole = len(rows) // BLOCK * BLOCK
        if whole:
            self._kept.append(rows[notable(rows[:whole], BLOCK)])
            self._firsts.append(rows[:whole:BLOCK].copy())  # a view would keep all rows
        self._tail = rows[whole:].copy()

    def rows(self, start: int, end: int) -> Rows:
        """The rows at positions ``start`` to ``end``, read from the file."""
        width = self._kind.itemsize
        data = self._read(HEADER_BYTES + start * width, (end - start) * width)
        rows = normalise(np.frombuffer(data[: len(data) // width * width], dtype=self._kind))
        if "batch" not in (self._kind.names or ()) and len(rows):
            rows["batch"] += start
        return rows

    def window(self, first: float | None, last: float | None, buckets: int) -> tuple[Rows, int]:
        """The rows to draw of a window.

        Args:
            first: The first batch; None is the recording's own.
            last: The last batch, inclusive; None is the recording's own.
            buckets: Width of the chart in pixels.

        Returns:
            The rows, and how many the window holds in the file: as many if it is drawn in full.
        """
        start = 0 if first is None else self._position(first, "left")
        end = self.count if last is None else self._position(last, "right")
        if end - start <= BLOCK * buckets:
            return decimate(self.rows(start, end) if end > start else self._tail[:0], buckets), max(0, end - start)
        kept = self.kept()
        low = int(np.searchsorted(kept["batch"], -(2**62) if first is None else first, "left"))
        high = int(np.searchsorted(kept["batch"], 2**62 if last is None else last, "right"))
        return decimate(kept[low:high], buckets), end - start

    def kept(self) -> Rows:
        """The notable rows of the whole recording; every maximum is among them."""
        if len(self._kept) > 1:
            self._kept = [np.concatenate(self._kept)]
        return np.concatenate([*self._kept, self._tail])

    def sample(self) -> Rows:
        """Every 64th row: what medians are taken from. Short recordings give all rows."""
        if self.count <= 64 * BLOCK:
            return self.rows(0, self.count)
        return self._first_rows()

    def peak_row(self) -> Rows | None:
        """The row with the highest allocated peak; None without records."""
        kept = self.kept()
        return kept[int(kept["allocated_peak_bytes"].argmax())] if len(kept) else None

    def reserved_peak_bytes(self) -> int | None:
        """The most that was reserved; None where no record tells."""
        kept = self.kept()
        highest = int(kept["reserved_peak_bytes"].max()) if len(kept) else -1
        return highest if highest >= 0 else None

    def bands(self) -> list[tuple[int, int, int]]:
        """Stretches of one stage: (first batch, last batch, stage code)."""
        if not self._changes:
            return []
        changes = np.concatenate(self._changes)
        starts = changes["batch"].tolist()
        last = int(self.last_row()["batch"]) if self.count else 0
        ends = [*(start - 1 for start in starts[1:]), last]
        return list(zip(starts, ends, changes["stage"].tolist(), strict=True))

    def marked(self, name: str) -> Rows:
        """The batches where one of `MARKS` is above zero."""
        known = self._marks[name]
        if len(known) > 1:
            self._marks[name] = known = [np.concatenate(known)]
        return known[0] if known else self._tail["batch"][:0]

    def last_row(self) -> Rows:
        """The newest row; there must be one."""
        last: Rows = (self._tail if len(self._tail) else self.rows(self.count - 1, self.count))[-1]
        return last

    def _first_rows(self) -> Rows:
        if len(self._firsts) > 1:
            self._firsts = [np.concatenate(self._firsts)]
        return self._firsts[0] if self._firsts else self._tail[:0]

    def _position(self, batch: float, side: Any) -> int:
        """Where a batch stands: by the first rows of the blocks, then inside one block."""
        firsts = self._first_rows()["batch"]
        block = max(0, int(np.searchsorted(firsts, batch, side)) - 1)
        inside = self.rows(block * BLOCK, min(self.count, (block + 2) * BLOCK))
        return block * BLOCK + int(np.searchsorted(inside["batch"], batch, side))
