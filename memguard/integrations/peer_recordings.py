"""What another rank's recording says about its process and its end."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import NamedTuple, final

import psutil

from memguard.recording.json_lines import parse_line

_TAIL_BYTES = 1 << 16
"""Of a recording's lines: its end, and what it last saw of other ranks."""


def pid_in(path: Path) -> int | None:
    """The process of a recording, if it ran on this host."""
    try:
        with open(path, "rb") as file:
            session = json.loads(file.readline())
        return int(session["pid"]) if session["host"] == socket.gethostname() else None
    except (OSError, ValueError, KeyError, TypeError):  # just begun, or damaged: nothing is known of it
        return None


def lives(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet collected by its parent does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:  # it is gone, or this system has no /proc
        return not os.path.isdir("/proc/self") and psutil.pid_exists(pid)


@final
class End(NamedTuple):
    """How a recording ended."""

    reason: str = ""
    """Empty where it cannot be read: nobody is declared dead for that."""
    batches: int = 0
    followed: bool = False
    """Whether that came from another rank."""


def end_of(path: Path) -> End | None:
    """The last words of a recording; None where it has none."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = [line for piece in file.read().split(b"\n") if (line := parse_line(piece)) is not None]
    except OSError:
        return End()
    followed = any(line["kind"] == "peer" for line in lines)
    ends = [line for line in lines if line["kind"] == "end"]
    return End(ends[-1].get("reason", ""), ends[-1].get("batches", 0), followed) if ends else None
