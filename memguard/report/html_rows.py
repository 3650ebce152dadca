"""Which records of a recording a chart needs: whole rows, by window, so that no maximum is ever lost. No torch."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any, TypeAlias, final

import numpy as np

from memguard.recording import COLUMNS, HEADER_BYTES, parse_header, record_type

Rows: TypeAlias = "np.ndarray[Any, Any]"
Positions: TypeAlias = "np.ndarray[Any, np.dtype[np.intp]]"

ROW = np.dtype([(name, kind) for name, kind in COLUMNS])
DRAWN = (
    "batch",
    "stage",
    "epoch",
    "index",
    "shapes",
    "seconds",
    "allocated_start_bytes",
    "allocated_peak_bytes",
    "allocated_end_bytes",
    "reserved_peak_bytes",
    "device_used_bytes",
    "host_rss_bytes",
    "num_alloc_retries",
    "num_ooms",
    "num_device_free",
)
"""The columns that the page shows."""
MARKS = ("num_alloc_retries", "num_ooms", "num_device_free")
"""The columns whose batches are marked in the chart, however many others share their pixel."""
BLOCK = 64
"""Records that one block of the index stands for."""
SPIKES = 256
"""The highest blocks of a window are always kept, however many of them share a pixel."""
_CHUNK = 1 << 15


def normalise(rows: Rows) -> Rows:
    """The rows under this version's columns: columns we do not know are dropped, missing ones are None."""
    if rows.dtype == ROW:
        return rows
    known = np.empty(len(rows), dtype=ROW)
    for name, kind in COLUMNS:
        if name in (rows.dtype.names or ()):
            with np.errstate(invalid="ignore"):
                known[name] = rows[name].astype(kind)
        elif name == "batch":
            known[name] = np.arange(len(rows))
        else:
            known[name] = np.iinfo(kind).min if kind.startswith("<i") else np.nan
    return known


def notable(rows: Rows, edges: Positions) -> Positions:
    """The rows to keep of each bucket: highest peak, lowest floor, most reserved, most host RAM.

    Args:
        rows: Normalised rows, at least one.
        edges: The first position of each bucket, ascending, from 0.

    Returns:
        Ascending positions without doubles; whole rows, so that columns still add up.
    """
    ends = np.append(edges[1:], len(rows))
    keep: list[int] = []
    columns = (
        (rows["allocated_peak_bytes"].copy(), True),
        (rows["allocated_start_bytes"].copy(), False),
        (rows["reserved_peak_bytes"].copy(), True),
        (rows["host_rss_bytes"].copy(), True),
    )
    for start, end in zip(edges.tolist(), ends.tolist(), strict=True):
        for values, highest in columns:
            part = values[start:end]
            keep.append(start + int(part.argmax() if highest else part.argmin()))
    return np.unique(np.asarray(keep, dtype=np.intp))


def decimate(rows: Rows, buckets: int) -> Rows:
    """At most about ``4 * buckets + 256`` of the rows, the highest peaks among them; all if they are few.

    Args:
        rows: Normalised rows in order of their batches.
        buckets: How many stretches of equal length to keep apart; the width of the chart in pixels.
    """
    if len(rows) <= 2 * buckets:
        return rows
    edges = np.unique(np.linspace(0, len(rows), buckets, endpoint=False).astype(np.intp))
    keep = notable(rows, edges)
    peaks = rows["allocated_peak_bytes"]
    spikes = np.argpartition(peaks, len(rows) - SPIKES)[-SPIKES:] if len(rows) > SPIKES else keep
    ends = np.asarray([0, len(rows) - 1], dtype=np.intp)
    chosen: Rows = rows[np.unique(np.concatenate([keep, spikes, ends]))]
    return chosen


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
            blocks = rows[:whole].reshape(-1, BLOCK)
            first = np.arange(0, whole, BLOCK)
            chosen = [
                first + blocks["allocated_peak_bytes"].argmax(axis=1),
                first + blocks["allocated_start_bytes"].argmin(axis=1),
                first + blocks["reserved_peak_bytes"].argmax(axis=1),
                first + blocks["host_rss_bytes"].argmax(axis=1),
            ]
            self._kept.append(rows[np.unique(np.concatenate(chosen))])
            self._firsts.append(rows[first])
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


def pack(rows: Rows, head: dict[str, Any]) -> bytes:
    """Rows as the page reads them: u32 length of the head, the head as JSON padded to 8 bytes, then float64 columns.

    None becomes NaN.
    """
    text = json.dumps({**head, "columns": DRAWN, "rows": len(rows)}).encode()
    text += b" " * (-(len(text) + 4) % 8)
    parts = [struct.pack("<I", len(text)), text]
    for name in DRAWN:
        values = rows[name].astype("<f8")
        if rows[name].dtype.kind == "i":
            values[rows[name] == np.iinfo(rows[name].dtype).min] = np.nan
        parts.append(values.tobytes())
    return b"".join(parts)
