"""A forecast's plot as a PNG image, written with the standard library alone."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, final

from memguard.report import pixel_font
from memguard.report.forecast_plot import COLOURS, bands
from memguard.units import format_bytes

if TYPE_CHECKING:
    from memguard.forecast.result import Forecast

_WIDTH, _HEIGHT = 960, 480
_LEFT, _TOP, _BOTTOM = 110, 84, 30
_TICKS = 4
_SCALE = 2
_BLACK, _GREY = b"\x22\x22\x22", b"\xd8\xd8\xd8"


@final
class _Canvas:
    """Pixels, white at first."""

    def __init__(self) -> None:
        self._pixels = bytearray(b"\xff" * (3 * _WIDTH * _HEIGHT))

    def fill(self, x: int, y: int, width: int, height: int, colour: bytes) -> None:
        """A rectangle."""
        for row in range(max(y, 0), min(y + height, _HEIGHT)):
            start = 3 * (row * _WIDTH + x)
            self._pixels[start : start + 3 * width] = colour * width

    def write(self, x: int, y: int, text: str) -> int:
        """A text; returns where it ends."""
        for across, down in pixel_font.pixels(text):
            self.fill(x + across * _SCALE, y + down * _SCALE, _SCALE, _SCALE, _BLACK)
        return x + len(text) * (pixel_font.WIDTH + 1) * _SCALE

    def png(self) -> bytes:
        """The image as a file."""
        rows = b"".join(b"\0" + self._pixels[3 * _WIDTH * y : 3 * _WIDTH * (y + 1)] for y in range(_HEIGHT))
        header = struct.pack(">IIBBBBB", _WIDTH, _HEIGHT, 8, 2, 0, 0, 0)
        chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def forecast_png(forecast: Forecast) -> bytes:
    """The image: memory over the step that holds the peak, stacked by owner, with its key and a scale."""
    canvas = _Canvas()
    stacked = bands(forecast)
    top = max((max(upper) for _, _, upper in stacked), default=1)
    canvas.write(_LEFT, 10, f"allocated in step {forecast.peak_step + 1}, up to {format_bytes(top)}")
    x, y = _LEFT, 36
    for owner, _, _ in stacked:
        if x + (len(owner) + 3) * (pixel_font.WIDTH + 1) * _SCALE > _WIDTH:
            x, y = _LEFT, y + 22
        canvas.fill(x, y, 14, 14, bytes.fromhex(COLOURS[owner][1:]))
        x = canvas.write(x + 20, y, owner) + 16
    height, width = _HEIGHT - _TOP - _BOTTOM, _WIDTH - _LEFT
    for tick in range(_TICKS + 1):
        level = _TOP + height - tick * height // _TICKS
        canvas.fill(_LEFT, level, width, 1, _GREY)
        canvas.write(4, level - 8, format_bytes(top * tick // _TICKS).replace("bytes", "B"))
    for column in range(width):
        for owner, lower, upper in stacked:
            index = column * len(upper) // width
            low, high = (_TOP + height - edge[index] * height // top for edge in (lower, upper))
            canvas.fill(_LEFT + column, high, 1, low - high, bytes.fromhex(COLOURS[owner][1:]))
    canvas.write(_LEFT, _HEIGHT - 20, "the allocations of one step, in order")
    return canvas.png()


def write_forecast_png(forecast: Forecast, path: Path) -> None:
    """Write the image to `path`."""
    path.write_bytes(forecast_png(forecast))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
