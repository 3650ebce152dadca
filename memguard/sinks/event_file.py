"""A file of events as TensorBoard reads it, written without TensorBoard, whose import takes longer than a short run.

Each record of the file is the length of an event, the event as a protocol buffer, and a checksum of both.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
from pathlib import Path
from typing import final

from memguard.clocks import now
from memguard.sinks.tensorboard_events import version_event

_MASK = 0xFFFFFFFF
_MASK_DELTA = 0xA282EAD8
_POLYNOMIAL = 0x82F63B78
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_BINARY", 0)


@final
class EventFile:
    """One file of events, which appears in its directory at once and takes whole events only.

    Raises:
        OSError: The file cannot be made.
    """

    def __init__(self, logdir: str | os.PathLike[str]) -> None:
        folder = Path(logdir)
        folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(now()):010d}.{socket.gethostname()}.{os.getpid()}"
        for number in itertools.count():
            try:
                self._file = os.open(folder / f"{name}.{number}", _FLAGS, 0o644)
                break
            except FileExistsError:
                continue  # of another guard in the same second
        self.write([version_event()])

    def write(self, events: list[bytes]) -> None:
        """Appends events, all in one call of the system.

        Raises:
            OSError: The disk is full, or the file is gone; the file is closed.
        """
        left = b"".join(map(_record, events))
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """No more events; a second call does nothing."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def _record(event: bytes) -> bytes:
    length = struct.pack("<Q", len(event))
    return length + _checksum(length) + event + _checksum(event)


def _checksum(data: bytes) -> bytes:
    """The masked CRC-32C of the format."""
    crc, table = _MASK, _table()
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= _MASK
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _MASK)


_entries: list[int] = []


def _table() -> list[int]:
    """The polynomial's remainders of all bytes."""
    if not _entries:
        for byte in range(256):
            for _ in range(8):
                byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
            _entries.append(byte)
    return _entries
