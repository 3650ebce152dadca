"""The format of a recording: columns, header, file names. No torch."""

from __future__ import annotations

import json
import re
import struct
from typing import TYPE_CHECKING, Any

from memguard.errors import RecordingError

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
PACK = struct.Struct("<" + "".join(_CODES[kind] for _, kind in COLUMNS))
"""One record, in the order of the columns."""
RECORD_BYTES = PACK.size
NONE = {"<i8": -(2**63), "<i4": -(2**31), "<i2": -(2**15)}
_NAME = re.compile(r"rank(\d+)-.+?(?:-device(\d+))?\.bin")


def place_of(name: str) -> tuple[int, int] | None:
    """The rank, and the position among the devices of its process, that a recording's file name tells; None: none."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2] or 0)) if match is not None else None


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
        raise RecordingError(f"{source} has a broken header: a column occurs twice")
    ours = dict(COLUMNS)
    if any(name in ours and kind[1] != ours[name][1] for name, kind in columns) or "stage" not in dict(columns):
        raise RecordingError(f"{source} has a broken header: a column has another type, or there is none for the stage")
    return {"version": version, "columns": columns, "stages": stages}


def record_type(header: dict[str, Any]) -> np.dtype[Any]:
    """The numpy type of one record under this header."""
    import numpy as np

    return np.dtype([(name, kind) for name, kind in header["columns"]])
