"""Which other rank of the run fell: told by what it left in the run's directory, never by asking it.

A rank that runs out of memory makes its post-mortem's folder before the error leaves the allocator, and one of this
node that is gone without an end in its recording was killed. Who is left waits in a collective until a timeout, and is
told here meanwhile, or when its own error comes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import psutil

from memguard.recording_format import FOLDER, place_of

_OOM = re.compile(r"oom-rank(\d+)-batch(\d+)")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Fallen:
    """A rank that fell."""

    rank: int
    batch: int | None = None
    cause: str | None = None
    """The first sentence of its post-mortem; None where there is none."""
    report: str | None = None
    """Path of that post-mortem."""
    pid: int | None = None
    """Its process, where it is gone without a word."""

    def __str__(self) -> str:
        if self.pid is not None:
            return f"rank {self.rank} (process {self.pid}) is gone without a word: it was killed from outside"
        cause = f": {self.cause}" if self.cause else ""
        where = f" Its report: {self.report}" if self.report else ""
        return f"rank {self.rank} ran out of memory in batch {self.batch}{cause}{where}"

    def to_json(self) -> dict[str, Any]:
        """For a recording's ``peer`` line."""
        what = "killed" if self.pid is not None else "out of memory"
        return {"rank": self.rank, "what": what, "batch": self.batch, "cause": self.cause, "report": self.report}


@final
class Peers:
    """The other ranks of a run, seen through its directory.

    Args:
        logdir: The run's directory.
        rank: This process's rank, which is none of the others.
    """

    def __init__(self, logdir: Path, rank: int) -> None:
        self._folder, self._rank = logdir / FOLDER, rank
        self._known: set[str] = set()
        self._changed = -1
        self._names: list[str] = []
        self._pids: dict[str, int | None] = {}

    def begin(self) -> None:
        """What lies there already is of earlier runs and starts."""
        self._known = {name for name in self._list() if _OOM.fullmatch(name) or self._gone(name) is not None}

    def announce(self, batch: int) -> None:
        """This rank's allocator is about to fail: the others may die of that before its report is written."""
        with contextlib.suppress(OSError):  # the disk is away: the others find no sign, and lose no more than that
            self._own(batch).mkdir(parents=True, exist_ok=True)

    def withdraw(self, batch: int) -> None:
        """The program caught the error: nobody need look at it."""
        with contextlib.suppress(OSError):  # never made, or a report lies in it by now
            self._own(batch).rmdir()

    def _own(self, batch: int) -> Path:
        return self._folder / f"oom-rank{self._rank:05d}-batch{batch}"

    def fallen(self) -> list[Fallen]:
        """The ranks that fell since `begin`: those out of memory, else those of this node that were killed."""
        fresh = [name for name in self._list() if name not in self._known]
        failed = [self._failed(name, match) for name in fresh if (match := _OOM.fullmatch(name)) is not None]
        if failed := [each for each in failed if each.rank != self._rank]:
            return sorted(failed, key=lambda each: each.rank)
        gone = [(place_of(name), self._gone(name)) for name in fresh]
        return [Fallen(rank=place[0], pid=pid) for place, pid in gone if place is not None and pid is not None]

    def reports_are_there(self) -> bool:
        """Whether every rank that ran out of memory has written its report."""
        return all((self._folder / name / "report.json").is_file() for name in self._fresh_ooms())

    def _fresh_ooms(self) -> list[str]:
        return [name for name in self._list() if name not in self._known and _OOM.fullmatch(name)]

    def _list(self) -> list[str]:
        """The names in the folder, listed again where something came or went."""
        try:
            changed = self._folder.stat().st_mtime_ns
            if changed != self._changed:
                self._names, self._changed = sorted(os.listdir(self._folder)), changed
        except OSError:
            pass  # not there yet, or a network disk that is away: what was seen last stands
        return self._names

    def _failed(self, name: str, match: re.Match[str]) -> Fallen:
        rank, batch = int(match[1]), int(match[2])
        path = self._folder / name / "report.json"
        try:
            told = json.loads(path.read_text())
            cause = str(told["cause"])
        except (OSError, ValueError, KeyError, TypeError):  # not written yet, or never: that it ran out is known
            return Fallen(rank=rank, batch=batch)
        return Fallen(rank=rank, batch=batch, cause=cause, report=str(path.with_suffix(".md")))

    def _gone(self, name: str) -> int | None:
        """The process that a recording is of, if it ran on this node, is no more, and left no word."""
        place = place_of(name)
        if place is None or place[0] == self._rank or place[1]:
            return None
        path = self._folder / name
        if name not in self._pids:
            self._pids[name] = _pid_in(path.with_suffix(".jsonl"))
        pid = self._pids[name]
        return pid if pid is not None and not _lives(pid) and not _has_end(path.with_suffix(".jsonl")) else None


def _pid_in(path: Path) -> int | None:
    """The process of a recording, if it ran on this host."""
    try:
        with open(path, "rb") as file:
            session = json.loads(file.readline())
        return int(session["pid"]) if session["host"] == socket.gethostname() else None
    except (OSError, ValueError, KeyError, TypeError):  # just begun, or damaged: nothing is known of it
        return None


def _lives(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet collected by its parent does not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:  # it is gone, or this system has no /proc
        return not os.path.isdir("/proc/self") and psutil.pid_exists(pid)


def _has_end(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            return b'"kind": "end"' in file.read()
    except OSError:  # cannot be read: nobody is declared dead for that
        return True
