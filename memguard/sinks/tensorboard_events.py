"""The events that memguard adds to a run in TensorBoard, as protocol buffers: curves, texts, the tab's manifest.

They are put together by hand, for TensorBoard's own classes take longer to import than a short run to train. The
numbers of the fields are those of ``event.proto``, ``summary.proto`` and ``tensor.proto`` in TensorBoard.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import struct
from pathlib import Path
from typing import Any, final

from memguard.clocks import now

PLUGIN = "memguard"
MANIFEST = "memguard/manifest"
_STRING = 7  # DataType.DT_STRING
_TENSORS = 2  # DataClass.DATA_CLASS_TENSOR
_LENGTH_DELIMITED, _FIXED_4, _FIXED_8 = 2, 5, 1  # wire types; the fourth, of a number, is 0


def version_event() -> bytes:
    """The first event of a file."""
    return _double(1, now()) + _bytes(3, b"brain.Event:2")


def scalars_event(values: dict[str, float], step: int, wall_time: float) -> bytes:
    """One point of several curves, by tag."""
    return _event([_bytes(1, tag.encode()) + _float(2, value) for tag, value in values.items()], step, wall_time)


def text_event(tag: str, markdown: str, step: int) -> bytes:
    """A text, which TensorBoard shows as markdown."""
    tensor = _number(1, _STRING) + _bytes(2, _bytes(2, _number(1, 1))) + _bytes(8, markdown.encode())
    metadata = _bytes(1, _bytes(1, b"text"))
    return _event([_bytes(1, f"{tag}/text_summary".encode()) + _bytes(8, tensor) + _bytes(9, metadata)], step)


def manifest_event(manifest: dict[str, Any], step: int) -> bytes:
    """An event that carries a JSON text for the Memory tab.

    It turns the tab on, and tells of a run where only TensorBoard's own files were copied.

    Args:
        manifest: What to tell of the run; JSON values.
        step: Grows from event to event of a run, or TensorBoard drops what came before.
    """
    metadata = _bytes(1, _bytes(1, PLUGIN.encode())) + _number(4, _TENSORS)
    return _text_value(MANIFEST, json.dumps(manifest).encode(), metadata, step)


def layout_event(tags: dict[str, list[str]], step: int) -> bytes:
    """An event that arranges our curves in TensorBoard's Custom Scalars tab.

    A run has one layout: the last one written counts, so this replaces one of the user's own.

    Args:
        tags: The tags of each chart, by its title.
        step: See `manifest_event`.
    """
    category = _bytes(1, b"Memory (memguard)")
    for title, names in tags.items():
        lines = b"".join(_bytes(1, (re.escape(name) + "$").encode()) for name in names)
        category += _bytes(2, _bytes(1, title.encode()) + _bytes(2, lines))
    metadata = _bytes(1, _bytes(1, b"custom_scalars"))
    return _text_value("custom_scalars__config__", _bytes(2, category), metadata, step)


def _text_value(tag: str, text: bytes, metadata: bytes, step: int) -> bytes:
    tensor = _number(1, _STRING) + _bytes(2, b"") + _bytes(8, text)
    return _event([_bytes(1, tag.encode()) + _bytes(8, tensor) + _bytes(9, metadata)], step)


def _event(values: list[bytes], step: int, wall_time: float | None = None) -> bytes:
    summary = b"".join(_bytes(1, value) for value in values)
    return _double(1, now() if wall_time is None else wall_time) + _number(2, step) + _bytes(5, summary)


def _varint(number: int) -> bytes:
    told = bytearray()
    while number > 0x7F:
        told.append(number & 0x7F | 0x80)
        number >>= 7
    told.append(number)
    return bytes(told)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | _LENGTH_DELIMITED) + _varint(len(value)) + value


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | _FIXED_4) + struct.pack("<f", value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | _FIXED_8) + struct.pack("<d", value)


# A file of events as TensorBoard reads it, written without TensorBoard, whose import takes longer than a short run.
# Each record of the file is the length of an event, the event as a protocol buffer, and a checksum of both.

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
