"""Reads a run from disk: fixed-width records in a .bin file, rare events as JSON lines beside it. No torch.

``<logdir>/memguard/rank00000-<start>.bin`` begins with a header of 4096 bytes (the magic line, then JSON with the
format version and the columns) and goes on with one record of 128 bytes for each batch, appended with an unbuffered
write with its batch, or at most half a second later where batches are short. ``.jsonl`` of the same name holds the
session, input shapes, findings, owners, post-mortems and the end. A run
that is killed at any byte leaves a readable recording: a torn last record or line is dropped. A process that is one of
several, on several nodes or on several devices has more in its name: ``rank00003-<start>-node1-restart2-device1.bin``.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from memguard.errors import RecordingError
from memguard.recording.format import COLUMNS, FOLDER, HEADER_BYTES, MOST_ROWS, NONE, parse_header, record_type
from memguard.recording.json_lines import MOST_FILE_BYTES, parse_line
from memguard.records.findings import Finding
from memguard.records.stats import BatchRecord, Stage

if TYPE_CHECKING:
    import numpy as np
    import pandas
    import polars


@final
class Recording:
    """One process's run, read from disk; also while it is still being written.

    Attributes:
        path: The .bin file.
        source: What to call it: its path, or the URL that it was copied from.
        rows: All whole records as a numpy structured array (a memory map).
        lines: The JSON lines, in order.
        notes: What was broken and left out, in words.
    """

    def __init__(
        self,
        path: Path,
        rows: np.ndarray[Any, Any],
        stages: list[str],
        lines: list[dict[str, Any]],
        notes: list[str],
        *,
        source: str | None = None,
    ) -> None:
        self.path, self.rows, self.lines, self.notes = path, rows, lines, notes
        self.source = source if source is not None else str(path)
        self._stages = [Stage(name) if name in Stage._value2member_map_ else Stage.OTHER for name in stages]

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, source: str | None = None) -> Recording:
        """Reads a recording up to the first break.

        Args:
            path: Its .bin file.
            source: What to call it, where that is not its path.

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
            mapped = np.memmap(path, dtype=kind, mode="r", offset=HEADER_BYTES, shape=(count,))
            rows: np.ndarray[Any, Any] = np.asarray(mapped)  # the same memory; each slice of a memmap costs more
        else:
            rows = np.empty(0, dtype=kind)
        lines, broken = read_lines(path.with_suffix(".jsonl"))
        if broken:
            notes.append(f"{path.with_suffix('.jsonl').name}: {broken}")
        return cls(path, rows, header["stages"], lines, notes, source=source)

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> np.ndarray[Any, Any]:
        """One column as float64 with NaN for unknown; all NaN where an older recording lacks it.

        Raises:
            ValueError: No recording has a column of that name; the text names those there are.
        """
        import numpy as np

        if name not in (self.rows.dtype.names or ()):
            known = [column for column, _ in COLUMNS]
            if name not in known:
                raise ValueError(f"a recording has no column {name!r}; the columns are {', '.join(known)}")
            return np.full(len(self.rows), np.nan)
        raw = self.rows[name]
        with np.errstate(invalid="ignore"):  # a signalling NaN
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

    def to_pandas(self) -> pandas.DataFrame:
        """The records as a pandas DataFrame, one row a batch; unknown is ``<NA>``, stages are their names.

        Raises:
            ImportError: pandas is not installed.
        """
        import pandas as pd

        data: dict[str, Any] = {}
        for name, values, unknown in self._table():
            whole = values.dtype.kind == "i"
            data[name] = pd.array(values.astype("int64"), dtype="Int64") if whole else values
            if whole and unknown.any():
                data[name][unknown] = pd.NA
        return pd.DataFrame(data)

    def to_polars(self) -> polars.DataFrame:
        """The same as a polars DataFrame; unknown is null.

        Raises:
            ImportError: polars is not installed.
        """
        import polars as pl

        series = []
        for name, values, unknown in self._table():
            column = pl.Series(name, values.astype("int64") if values.dtype.kind == "i" else values)
            series.append(column.set(pl.Series(unknown), None) if unknown.any() else column)
        return pl.DataFrame(series)

    def _table(self) -> Iterator[tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        """Of each column the name, the values, and which of them are unknown."""
        import numpy as np

        for name, kind in COLUMNS:
            if name not in (self.rows.dtype.names or ()):
                continue
            values = np.ascontiguousarray(self.rows[name])
            if name == "stage":
                names = np.array([self._stage(code).value for code in range(len(self._stages))] + [Stage.OTHER.value])
                known = (values >= 0) & (values < len(self._stages))
                values = names[np.where(known, values, len(self._stages))].astype(object)
                yield name, values, np.zeros(len(values), dtype=bool)
            else:
                yield name, values, values == NONE[kind] if kind in NONE else np.zeros(len(values), dtype=bool)

    def stage_mask(self, stage: Stage) -> np.ndarray[Any, Any]:
        """Which rows are of a stage."""
        import numpy as np

        mask = np.zeros(len(self.rows), dtype=bool)
        for code, known in enumerate(self._stages):
            if known is stage:
                mask |= self.rows["stage"] == code
        return mask

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """The JSON lines of one kind, in order."""
        return [line for line in self.lines if line.get("kind") == kind]

    @property
    def session(self) -> dict[str, Any]:
        """What the run said of itself when it began, updated by what it learned later (the device's size)."""
        merged: dict[str, Any] = {}
        for line in self.lines:
            if line.get("kind") in ("session", "device", "coordinates"):
                merged.update({key: value for key, value in line.items() if value is not None})
        return merged

    @property
    def end(self) -> dict[str, Any] | None:
        """How the run ended; None if it ended without a word (or still runs)."""
        ends = self.of_kind("end")
        return ends[-1] if ends else None

    @property
    def told(self) -> list[str]:
        """What the run itself noted at its end: what was switched off or left out."""
        return [note for note in (self.end or {}).get("notes") or () if isinstance(note, str)]

    @property
    def findings(self) -> list[Finding]:
        """All findings as they were at the end; of a run that ended without a word the newest state of each."""
        newest: dict[tuple[str, str | None, int | None, str | None], Finding] = {}
        lines, final = self.of_kind("finding"), (self.end or {}).get("final_findings")
        if final is not None:
            lines = lines[max(len(lines) - final, 0) :]
        for line in lines:
            try:
                finding = Finding.from_json(line)
            except (ValueError, TypeError, KeyError):  # of another version or damaged: the others stand
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
    except (OSError, ValueError):  # gone meanwhile, or no valid path
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
