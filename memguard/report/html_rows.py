"""Which records of a recording a chart needs: whole rows, by window, so that no maximum is ever lost. No torch."""

from __future__ import annotations

import json
import struct
from typing import Any, TypeAlias

import numpy as np

from memguard.recording.format import COLUMNS

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
SENT = (*DRAWN, "optimizer_steps", "time")
"""Those and what its axis can tell, which a report in one file leaves out for its size."""
MARKS = ("num_alloc_retries", "num_ooms", "num_device_free")
"""The columns whose batches are marked in the chart, however many others share their pixel."""
_NOTABLE = (
    ("allocated_peak_bytes", True),
    ("allocated_start_bytes", False),
    ("reserved_peak_bytes", True),
    ("host_rss_bytes", True),
)
SPIKES = 256
"""The highest blocks of a window are always kept, however many of them share a pixel."""


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


def notable(rows: Rows, width: int) -> Positions:
    """The rows to keep of each bucket: highest peak, lowest floor, most reserved, most host RAM.

    Args:
        rows: Normalised rows, at least one.
        width: How many rows make a bucket; the last one may have fewer.

    Returns:
        Ascending positions without doubles; whole rows, so that columns still add up.
    """
    first = np.arange(0, len(rows), width)
    missing = len(first) * width - len(rows)
    keep = []
    for name, highest in _NOTABLE:
        values = np.pad(rows[name], (0, missing), mode="edge").reshape(-1, width)
        keep.append(first + (values.argmax(axis=1) if highest else values.argmin(axis=1)))
    return np.unique(np.concatenate(keep))


def decimate(rows: Rows, buckets: int) -> Rows:
    """At most about ``4 * buckets + 256`` of the rows, the highest peaks among them; all if they are few.

    Args:
        rows: Normalised rows in order of their batches.
        buckets: How many stretches of equal length to keep apart; the width of the chart in pixels.
    """
    if len(rows) <= 2 * buckets:
        return rows
    keep = notable(rows, -(-len(rows) // buckets))
    peaks = rows["allocated_peak_bytes"]
    spikes = np.argpartition(peaks, len(rows) - SPIKES)[-SPIKES:] if len(rows) > SPIKES else keep
    ends = np.asarray([0, len(rows) - 1], dtype=np.intp)
    chosen: Rows = rows[np.unique(np.concatenate([keep, spikes, ends]))]
    return chosen


def pack(rows: Rows, head: dict[str, Any]) -> bytes:
    """Rows as the page reads them: u32 length of the head, the head as JSON padded to 8 bytes, then float64 columns.

    None becomes NaN.
    """
    text = json.dumps({**head, "columns": SENT, "rows": len(rows)}).encode()
    text += b" " * (-(len(text) + 4) % 8)
    parts = [struct.pack("<I", len(text)), text]
    for name in SENT:
        values = rows[name].astype("<f8")
        if rows[name].dtype.kind == "i":
            values[rows[name] == np.iinfo(rows[name].dtype).min] = np.nan
        parts.append(values.tobytes())
    return b"".join(parts)
