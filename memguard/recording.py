"""A run on disk: fixed-width records in a .bin file, rare things as JSON lines beside it. No torch.

``<logdir>/memguard/rank00000-<start>.bin`` begins with a header of 4096 bytes (the magic line, then JSON with the
format version and the columns) and goes on with one record of 128 bytes for each batch, appended with an unbuffered
write with its batch, or at most half a second later where batches are short. ``.jsonl`` of the same name holds the
session, input shapes, findings, owners, post-mortems and the end. A run
that is killed at any byte leaves a readable recording: a torn last record or line is dropped. A process that is one of
several, on several nodes or on several devices has more in its name: ``rank00003-<start>-node1-restart2-device1.bin``.
"""

from __future__ import annotations

import json
import os
import re
import socket
import stat
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from memguard.errors import RecordingError
from memguard.findings import Finding
from memguard.recorded_lines import MOST_FILE_BYTES, parse_line
from memguard.stats import STAGES, BatchRecord, Stage

if TYPE_CHECKING:
    import numpy as np

MAGIC = b"memguard-recording\n"
VERSION = 1
HEADER_BYTES = 4096
FOLDER = "memguard"

# The columns on disk, in the order of BatchRecord's meaning: name and numpy type. An integer column holds None as the
# smallest number of its type.
COLUMNS: tuple[tuple[str, str], ...] = (
    ("batch", "<i8"),
    ("time", "<f8"),
    ("seconds", "<f4"),
    ("stage", "<i2"),
    ("device", "<i2"),
    ("epoch", "<i4"),
    ("index", "<i4"),
    ("optimizer_steps", "<i4"),
    ("shapes", "<i4"),
    ("allocated_start_bytes", "<i8"),
    ("allocated_peak_bytes", "<i8"),
    ("allocated_end_bytes", "<i8"),
    ("reserved_bytes", "<i8"),
    ("reserved_peak_bytes", "<i8"),
    ("active_peak_bytes", "<i8"),
    ("inactive_split_bytes", "<i8"),
    ("device_used_bytes", "<i8"),
    ("host_rss_bytes", "<i8"),
    ("num_alloc_retries", "<i4"),
    ("num_ooms", "<i4"),
    ("num_device_alloc", "<i4"),
    ("num_device_free", "<i4"),
)
MOST_ROWS = 1 << 24
"""Records of one file that are read: a run of a batch a second takes half a year to write more."""
_CODES = {"<i8": "q", "<f8": "d", "<f4": "f", "<i4": "i", "<i2": "h"}
_PACK = struct.Struct("<" + "".join(_CODES[kind] for _, kind in COLUMNS))
RECORD_BYTES = _PACK.size
NONE = {"<i8": -(2**63), "<i4": -(2**31), "<i2": -(2**15)}
_N8, _N4 = NONE["<i8"], NONE["<i4"]
_NAME = re.compile(r"rank(\d+)-.+?(?:-device(\d+))?\.bin")
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
    """

    def __init__(self, logdir: str | os.PathLike[str], session: dict[str, Any]) -> None:
        folder = Path(logdir) / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        self.start = time.time()
        self._pid = os.getpid()
        self.first_batch = _continue_from(folder, session)
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
        data = b"".join(map(_pack, records))
        if os.write(self._data, data) != len(data):
            raise OSError(f"only part of a record could be written to {self.path}; is the disk full?")

    def line(self, kind: str, data: dict[str, Any]) -> None:
        """Appends one rare thing: a JSON object with its kind and the time."""
        line = {**data, "kind": kind, "time": round(time.time(), 3)}
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
        except FileExistsError:
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
                return int(_PACK.unpack(file.read(RECORD_BYTES))[0]) + 1
    return 0


def place_of(name: str) -> tuple[int, int] | None:
    """The rank, and the position among the devices of its process, that a recording's file name tells; None: none."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2] or 0)) if match is not None else None


def _pack(r: BatchRecord) -> bytes:
    """One record as its 128 bytes."""
    return _PACK.pack(
        r.batch,
        r.time,
        r.seconds,
        _STAGE_CODE[r.stage],
        r.device,
        _N4 if r.epoch is None else r.epoch,
        _N4 if r.index is None else r.index,
        r.optimizer_steps,
        _N4 if r.shapes is None else r.shapes,
        _N8 if r.allocated_start_bytes is None else r.allocated_start_bytes,
        _N8 if r.allocated_peak_bytes is None else r.allocated_peak_bytes,
        _N8 if r.allocated_end_bytes is None else r.allocated_end_bytes,
        _N8 if r.reserved_bytes is None else r.reserved_bytes,
        _N8 if r.reserved_peak_bytes is None else r.reserved_peak_bytes,
        _N8 if r.active_peak_bytes is None else r.active_peak_bytes,
        _N8 if r.inactive_split_bytes is None else r.inactive_split_bytes,
        _N8 if r.device_used_bytes is None else r.device_used_bytes,
        _N8 if r.host_rss_bytes is None else r.host_rss_bytes,
        _N4 if r.num_alloc_retries is None else r.num_alloc_retries,
        _N4 if r.num_ooms is None else r.num_ooms,
        _N4 if r.num_device_alloc is None else r.num_device_alloc,
        _N4 if r.num_device_free is None else r.num_device_free,
    )


def parse_header(data: bytes, source: str = "the recording") -> dict[str, Any]:
    """The header of a .bin file, checked.

    Args:
        data: At least the first 4096 bytes.
        source: What to call the file in an error.

    Raises:
        RecordingError: Not a recording, or of a newer format.
    """
    if not data.startswith(MAGIC):
        raise RecordingError(f"{source} is not a memguard recording")
    try:
        header = json.loads(data[len(MAGIC) : HEADER_BYTES])
        version, columns = int(header["version"]), [(str(name), str(kind)) for name, kind in header["columns"]]
        stages = [str(name) for name in header["stages"]]
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise RecordingError(f"{source} has a broken header") from None
    if version > VERSION:
        raise RecordingError(f"{source} has format version {version}; this memguard reads up to {VERSION}: update it")
    if not columns or len(columns) > 256 or any(kind not in _CODES for _, kind in columns):
        raise RecordingError(f"{source} has a broken header: unknown column types")
    if len({name for name, _ in columns}) != len(columns):
        raise RecordingError(f"{source} has a broken header: a column stands twice")
    ours = dict(COLUMNS)
    if any(name in ours and kind[1] != ours[name][1] for name, kind in columns) or "stage" not in dict(columns):
        raise RecordingError(f"{source} has a broken header: a column has another type, or there is none for the stage")
    return {"version": version, "columns": columns, "stages": stages}


def record_type(header: dict[str, Any]) -> np.dtype[Any]:
    """The numpy type of one record under this header."""
    import numpy as np

    return np.dtype([(name, kind) for name, kind in header["columns"]])


@final
class Recording:
    """One process's run, read from disk; also while it is still being written.

    Attributes:
        path: The .bin file.
        rows: All whole records as a numpy structured array (a memory map).
        lines: The JSON lines, in order.
        notes: What was broken and left out, in words.
    """

    def __init__(
        self, path: Path, rows: np.ndarray[Any, Any], stages: list[str], lines: list[dict[str, Any]], notes: list[str]
    ) -> None:
        self.path, self.rows, self.lines, self.notes = path, rows, lines, notes
        self._stages = [Stage(name) if name in Stage._value2member_map_ else Stage.OTHER for name in stages]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Recording:
        """Reads a recording up to the first break.

        Raises:
            RecordingError: The file is missing, unreadable, not a recording, or of a newer format.
        """
        import numpy as np

        path, notes = Path(path), []
        if not lies_there(path):
            raise RecordingError(f"{path} is a link to elsewhere, or no file at all")
        try:
            with open(path, "rb") as file:
                header = parse_header(file.read(HEADER_BYTES), str(path))
                size = os.fstat(file.fileno()).st_size - HEADER_BYTES
        except OSError as error:
            raise RecordingError(f"{path} cannot be read: {error.strerror or error}") from None
        kind = record_type(header)
        count, torn = divmod(max(size, 0), kind.itemsize)
        if torn:
            notes.append(f"{path.name}: the last record is torn ({torn} of {kind.itemsize} bytes); it was left out")
        if count > MOST_ROWS:
            notes.append(f"{path.name}: {count:,} records; the first {MOST_ROWS:,} were read")
            count = MOST_ROWS
        if count:
            rows: np.ndarray[Any, Any] = np.memmap(path, dtype=kind, mode="r", offset=HEADER_BYTES, shape=(count,))
        else:
            rows = np.empty(0, dtype=kind)
        lines, broken = read_lines(path.with_suffix(".jsonl"))
        if broken:
            notes.append(f"{path.with_suffix('.jsonl').name}: {broken}")
        return cls(path, rows, header["stages"], lines, notes)

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> np.ndarray[Any, Any]:
        """One column as float64 with NaN for unknown; all NaN where an older recording lacks it."""
        import numpy as np

        if name not in (self.rows.dtype.names or ()):
            return np.full(len(self.rows), np.nan)
        raw = self.rows[name]
        values = raw.astype(np.float64)
        if raw.dtype.kind == "i":
            values[raw == np.iinfo(raw.dtype).min] = np.nan
        return values

    def record(self, position: int) -> BatchRecord:
        """The record at a position, counted from 0."""
        row = self.rows[position]
        values: dict[str, Any] = {}
        for name, kind in COLUMNS:
            if name not in (self.rows.dtype.names or ()):
                continue
            value = row[name].item()
            values[name] = None if kind in NONE and value == NONE[kind] else value
        values["stage"] = self._stage(values.get("stage"))
        values.setdefault("batch", position)
        values.setdefault("time", 0.0)
        values.setdefault("seconds", 0.0)
        return BatchRecord(**values)

    def records(self) -> Iterator[BatchRecord]:
        """All records, in order."""
        return (self.record(position) for position in range(len(self.rows)))

    def stage_mask(self, stage: Stage) -> np.ndarray[Any, Any]:
        """Which rows are of a stage."""
        import numpy as np

        codes = [code for code, known in enumerate(self._stages) if known is stage]
        return np.isin(self.rows["stage"], codes)

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """The JSON lines of one kind, in order."""
        return [line for line in self.lines if line.get("kind") == kind]

    @property
    def session(self) -> dict[str, Any]:
        """What the run said of itself when it began, updated by what it learned later (the device's size)."""
        merged: dict[str, Any] = {}
        for line in self.lines:
            if line.get("kind") in ("session", "device"):
                merged.update({key: value for key, value in line.items() if value is not None})
        return merged

    @property
    def end(self) -> dict[str, Any] | None:
        """How the run ended; None if it ended without a word (or still runs)."""
        ends = self.of_kind("end")
        return ends[-1] if ends else None

    @property
    def findings(self) -> list[Finding]:
        """The newest state of each finding, in the order of their first appearance."""
        newest: dict[tuple[str, str | None, int | None, str | None], Finding] = {}
        for line in self.of_kind("finding"):
            try:
                finding = Finding.from_json(line)
            except (ValueError, TypeError, KeyError):
                continue
            newest[finding.cause] = finding
        return list(newest.values())

    def shapes(self, number: int | None) -> list[Any] | None:
        """The input shapes behind a record's number."""
        if number is None:
            return None
        for line in self.of_kind("shapes"):
            shapes = line.get("shapes")
            if line.get("id") == number and isinstance(shapes, list):
                return shapes
        return None

    def _stage(self, code: object) -> Stage:
        return self._stages[code] if isinstance(code, int) and 0 <= code < len(self._stages) else Stage.OTHER


def read_lines(path: Path) -> tuple[list[dict[str, Any]], str]:
    """The JSON lines of a file up to the first broken one, and what broke (empty if nothing did)."""
    if not lies_there(path):
        return [], "is missing, or a link to elsewhere"
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_FILE_BYTES)
            whole = not file.read(1)
    except OSError as error:
        return [], f"cannot be read ({error.strerror or error})"
    lines: list[dict[str, Any]] = []
    pieces = data.split(b"\n")
    for number, piece in enumerate(pieces, 1):
        if not piece.strip():
            continue
        line = parse_line(piece)
        if line is None and number == len(pieces):
            return lines, "the last line is torn" if whole else f"read up to {MOST_FILE_BYTES >> 20} MiB"
        if line is None:
            return lines, f"line {number} is broken; read up to there"
        lines.append(line)
    return lines, "" if whole else f"read up to {MOST_FILE_BYTES >> 20} MiB"


def lies_there(path: str | os.PathLike[str]) -> bool:
    """Whether a path is an ordinary file in its own folder: no pipe that would wait, no link to another place."""
    try:
        real = os.path.realpath(path)
        return stat.S_ISREG(os.stat(real).st_mode) and os.path.dirname(real) == os.path.realpath(os.path.dirname(path))
    except (OSError, ValueError):
        return False


def find_recordings(logdir: str | os.PathLike[str]) -> list[Path]:
    """The .bin files of all runs below a directory, oldest first within each run.

    A directory may be a run's own, its ``memguard`` folder, or one with many runs below it.

    Raises:
        RecordingError: The directory does not exist, cannot be read, or holds no recording.
    """
    root = Path(logdir)
    if root.is_file():
        return [root.resolve()]
    if not root.is_dir():
        raise RecordingError(f"{root} does not exist; give the directory that memguard printed at the end of the run")
    problems: list[str] = []
    found: list[Path] = []
    for folder, folders, files in os.walk(root, onerror=lambda error: problems.append(str(error))):
        folders[:] = sorted(name for name in folders if name != "checkpoints" and not name.startswith("."))
        if Path(folder).name == FOLDER:
            found += [
                Path(folder) / name for name in sorted(files) if name.endswith(".bin") and name.startswith("rank")
            ]
    if not found:
        why = f" ({problems[0]})" if problems else ""
        raise RecordingError(f"{root} holds no memguard recording{why}; is it the directory of a guarded run?")
    return found
