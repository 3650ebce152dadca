"""A forecast's plot as a PNG image, written with the standard library alone."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from memguard.report.forecast_plot import COLOURS, bands

if TYPE_CHECKING:
    from memguard.forecast.result import Forecast

_WIDTH, _HEIGHT = 900, 360
_MARGIN = 0.95


def forecast_png(forecast: Forecast) -> bytes:
    """The image: memory over the step that holds the peak, stacked by owner; as tall as the peak."""
    stacked = bands(forecast)
    top = max((max(upper) for _, _, upper in stacked), default=1) / _MARGIN
    columns = []
    for x in range(_WIDTH):
        heights = []
        for owner, _, upper in stacked:
            value = upper[x * len(upper) // _WIDTH]
            heights.append((value / top * _HEIGHT, bytes.fromhex(COLOURS[owner][1:])))
        columns.append(heights)
    rows = bytearray()
    for y in range(_HEIGHT, 0, -1):
        rows.append(0)  # no filter
        for heights in columns:
            rows += next((colour for height, colour in heights if y <= height), b"\xff\xff\xff")
    header = struct.pack(">IIBBBBB", _WIDTH, _HEIGHT, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(bytes(rows), 9))
        + _chunk(b"IEND", b"")
    )


def write_forecast_png(forecast: Forecast, path: Path) -> None:
    """Write the image to `path`."""
    path.write_bytes(forecast_png(forecast))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
