"""The peaks of all ranks over the run as a map, rank by time, with each rank's place on the parallel axes. No torch."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from memguard.report.axis_groups import NODE, place_in
from memguard.report.html_rows import Rows
from memguard.report.ranks import clock_of, heights_of, spread

_GROUPS = ("pp", "ep", "tp", "cp", "fsdp", "dp", NODE)
"""Axes to group by; the first one that is known is taken at first."""
_MOST_CELLS, _MOST_COLUMNS, _MOST_ROWS = 64_000, 240, 1024


def heat_map(windows: Mapping[int, Rows], sessions: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """The map as JSON values.

    Args:
        windows: The rows of one window, by rank; every rank's maxima are among them.
        sessions: What each rank's recording says of itself.

    Returns:
        ``ranks``: of each row of the map its first rank. ``together``: how many ranks a row is of, more than one where
        they are very many; it has the highest of them. ``places``: by axis, the place of each row. ``batch``: the
        number of the first record in each column. ``low`` and ``high``: bytes. ``cells``: a byte for each cell, row by
        row, in base64: 0 is unknown, 1 to 255 go from low to high.
    """
    windows = {rank: rows for rank, rows in windows.items() if len(rows)}
    if len(windows) < 2:
        return {"ranks": [], "together": 1, "places": {}, "batch": [], "low": 0, "high": 0, "cells": ""}
    clock = clock_of(windows.values())
    begin = min(int(rows[clock].min()) for rows in windows.values())
    together = -(-len(windows) // _MOST_ROWS)
    columns = max(8, min(_MOST_COLUMNS, _MOST_CELLS * together // len(windows)))
    heights = {rank: heights_of(rows, begin=begin, clock=clock) for rank, rows in windows.items()}
    compared = spread(heights, columns)
    table, ranks = compared.table, compared.ranks
    numbers = [_in_columns(each.rows["batch"], table.shape[1]) for each in compared.heights]
    batch = np.maximum.accumulate(np.max(numbers, axis=0))
    known = table[table >= 0]
    low, high = (int(known.min()), int(known.max())) if len(known) else (0, 0)
    if together > 1:
        missing = -len(table) % together
        padded = np.pad(table, ((0, missing), (0, 0)), constant_values=-1)
        table = padded.reshape(-1, together, table.shape[1]).max(axis=1)
    shares = (table - low) / max(high - low, 1)
    cells = np.where(table >= 0, 1 + np.round(254 * shares), 0).astype(np.uint8)
    rows = ranks[::together]
    places = {rank: place_in(sessions.get(rank, {})) for rank in rows}
    return {
        "ranks": rows,
        "together": together,
        "places": {
            axis: [places[rank].get(axis) for rank in rows]
            for axis in _GROUPS
            if len({places[rank].get(axis) for rank in rows}) > 1
        },
        "batch": batch.tolist(),
        "low": low,
        "high": high,
        "cells": base64.b64encode(cells.tobytes()).decode(),
    }


def _in_columns(batches: Any, count: int) -> Any:
    """A rank's batch numbers in the common columns; -1 where it has none."""
    padded = np.full(count, -1, dtype=np.int64)
    padded[: len(batches)] = batches
    return padded
