"""Reading a local file by offset, as the indexes want it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def reader(path: Path) -> Callable[[int, int], bytes]:
    """``read(offset, size)`` of a file."""

    def read(offset: int, size: int) -> bytes:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(size)

    return read
