"""Writes a run to disk: unbuffered appends of records, one JSON line for each rare event."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, final

from memguard.clocks import now
from memguard.recording.format import (
    COLUMNS,
    FOLDER,
    HEADER_BYTES,
    MAGIC,
    NONE,
    PACK,
    RECORD_BYTES,
    VERSION,
    place_of,
)
from memguard.records.stats import STAGES, BatchRecord, Series

_N4 = NONE["<i4"]
_SIZES = [name for name, _ in COLUMNS].index("allocated_start_bytes")
"""From this column on a record has the memory's own numbers."""
_HEAD, _TAIL = struct.Struct(PACK.format[: 1 + _SIZES]), struct.Struct("<" + PACK.format[1 + _SIZES :])
_UNKNOWN = [NONE[kind] for _, kind in COLUMNS[_SIZES:]]
_STAGE_CODE = {stage: code for code, stage in enumerate(STAGES)}


@final
class RecordingWriter:
    """Appends one process's run to its two files.

    Every method may raise OSError (a full disk, a vanished directory): the caller switches the recording off, for a
    record written in part must stay the last one.

    Args:
        logdir: The run's directory; the files go to its folder ``memguard``.
        session: What the reader should know of the run: device, rank, versions, options. The file's name is made of
            ``rank``, ``node`` and ``restart`` (of the launcher), and ``lane``: which of the process's devices it is.
            ``first_batch`` is the least number that the first batch gets, for earlier recordings that lie elsewhere.
    """

    def __init__(self, logdir: str | os.PathLike[str], session: dict[str, Any]) -> None:
        folder, session = Path(logdir) / FOLDER, dict(session)
        folder.mkdir(parents=True, exist_ok=True)
        self.start = now()
        self._pid = os.getpid()
        self.first_batch = max(_continue_from(folder, session), int(session.pop("first_batch", 0)))
        """One more than the last batch of this rank's earlier recordings in the directory: numbers only ever grow."""
        self._lines = -1
        self._data, self.path = _create(folder, session, self.start)
        try:
            self._begin(session)
        except BaseException:
            self.close()
            raise

    def _begin(self, session: dict[str, Any]) -> None:
        self._lines = os.open(self.path.with_suffix(".jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        header = {
            "version": VERSION,
            "columns": COLUMNS,
            "record_bytes": RECORD_BYTES,
            "stages": [s.value for s in STAGES],
        }
        text = MAGIC + json.dumps(header).encode()
        self._write(self._data, text + b" " * (HEADER_BYTES - 1 - len(text)) + b"\n")
        self.line("session", {"host": socket.gethostname(), "pid": self._pid, **session})

    def record(self, *records: BatchRecord) -> None:
        """Appends records, in one write."""
        self.write([record] for record in records)

    def write(self, series: Iterable[Series]) -> None:
        """The same for records of which those that are alike stand together."""
        data = b"".join(_packed(series))
        if os.write(self._data, data) != len(data):
            raise OSError(f"only part of a record could be written to {self.path}; is the disk full?")

    def line(self, kind: str, data: dict[str, Any]) -> None:
        """Appends one rare thing: a JSON object with its kind and the time."""
        line = {**data, "kind": kind, "time": round(now(), 3)}
        text = json.dumps(line, default=str, ensure_ascii=True)
        self._write(self._lines, text.encode() + b"\n")

    def close(self) -> None:
        """Closes both files; a second call does nothing."""
        for name in ("_data", "_lines"):
            descriptor = getattr(self, name)
            if descriptor >= 0:
                setattr(self, name, -1)
                os.close(descriptor)

    def _write(self, descriptor: int, data: bytes) -> None:
        if os.write(descriptor, data) != len(data):
            raise OSError(f"only part of a line could be written beside {self.path}; is the disk full?")


def _create(folder: Path, session: dict[str, Any], start: float) -> tuple[int, Path]:
    """A new .bin file that no other process start has: its name carries rank, start time, node, restart and device."""
    rank = int(session.get("rank", 0))
    ending = f"-node{session['node']}" if session.get("node") else ""
    ending += f"-restart{session['restart']}" if session.get("restart") else ""
    ending += f"-device{session['lane']}" if session.get("lane") else ""
    for bump in range(1000):
        milliseconds = int(start * 1000) + bump
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(milliseconds // 1000)) + f"{milliseconds % 1000:03d}Z"
        path = folder / f"rank{rank:05d}-{stamp}{ending}.bin"
        try:
            return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644), path
        except FileExistsError:  # another process began at this millisecond
            continue
    raise OSError(f"no free name for a recording in {folder}: a thousand begin at this very second")


def _continue_from(folder: Path, session: dict[str, Any]) -> int:
    """The number after the last whole record of the rank's newest recording of this device; 0 where there is none."""
    rank, lane = int(session.get("rank", 0)), int(session.get("lane") or 0)
    for path in sorted(folder.glob(f"rank{rank:05d}-*.bin"), reverse=True):
        if place_of(path.name) != (rank, lane):
            continue
        with open(path, "rb") as file:
            count = (file.seek(0, os.SEEK_END) - HEADER_BYTES) // RECORD_BYTES
            if count > 0:
                file.seek(HEADER_BYTES + (count - 1) * RECORD_BYTES)
                return int(PACK.unpack(file.read(RECORD_BYTES))[0]) + 1
    return 0


def _packed(series: Iterable[Series]) -> Iterator[bytes]:
    """The 128 bytes of each record, in two parts; the second one is the same for records that are alike."""
    for records in series:
        tail = _tail_of(records[0])
        for r in records:
            yield _HEAD.pack(
                r.batch,
                r.time,
                r.seconds,
                _STAGE_CODE[r.stage],
                r.device,
                _N4 if r.epoch is None else r.epoch,
                _N4 if r.index is None else r.index,
                r.optimizer_steps,
                _N4 if r.shapes is None else r.shapes,
            )
            yield tail


def _tail_of(r: BatchRecord) -> bytes:
    sizes = (
        r.allocated_start_bytes,
        r.allocated_peak_bytes,
        r.allocated_end_bytes,
        r.reserved_bytes,
        r.reserved_peak_bytes,
        r.active_peak_bytes,
        r.inactive_split_bytes,
        r.device_used_bytes,
        r.host_rss_bytes,
        r.num_alloc_retries,
        r.num_ooms,
        r.num_device_alloc,
        r.num_device_free,
    )
    return _TAIL.pack(*[none if size is None else size for size, none in zip(sizes, _UNKNOWN, strict=True)])
