"""Which other rank of the run failed, read from the run's directory.

A rank that runs out of memory makes its post-mortem's folder before the error leaves the allocator, one of this node
that is gone without an end in its recording was killed, and one that failed or finished says so in that end. Who is
left waits in a collective until a timeout, and is told here meanwhile, or when its own error comes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import psutil

from memguard.recording.format import FOLDER, place_of
from memguard.recording.json_lines import parse_line

_FAILURES = ("an exception: ", "exit code ")
"""How the reason of an end begins that was a failure of this rank's own."""
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
    ended: str | None = None
    """How it ended, where that was its own doing: by an exception, or it finished."""

    def __str__(self) -> str:
        if self.ended == "finished":
            return f"rank {self.rank} finished after batch {self.batch} (have all ranks as many batches?)"
        if self.ended is not None:
            return f"rank {self.rank} ended with {self.ended} after batch {self.batch}"
        if self.pid is not None:
            return f"rank {self.rank} (process {self.pid}) is gone without a word: it was killed from outside"
        cause = f": {self.cause}" if self.cause else ""
        where = f" Its report: {self.report}" if self.report else ""
        return f"rank {self.rank} ran out of memory in batch {self.batch}{cause}{where}"

    def to_json(self) -> dict[str, Any]:
        """For a recording's ``peer`` line."""
        what = self.ended or ("killed" if self.pid is not None else "out of memory")
        return {"rank": self.rank, "what": what, "batch": self.batch, "cause": self.cause, "report": self.report}


@final
class Peers:
    """The other ranks of a run, seen through its directory."""

    def __init__(self, logdir: Path, rank: int) -> None:
        self._folder, self._rank = logdir / FOLDER, rank
        self._known: set[str] = set()
        self._changed = -1
        self._names: list[str] = []
        self._pids: dict[str, int | None] = {}

    def begin(self) -> None:
        """What lies there already is of earlier runs and starts."""
        self._known = {name for name in self._list() if _OOM.fullmatch(name) or self._is_over(name)}
        self._pids.clear()  # of those that begin at this moment nothing could be read yet

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

    def out_of_memory(self) -> list[Fallen]:
        """The ranks that ran out of memory since `begin`."""
        fresh = [name for name in self._list() if name not in self._known]
        failed = [self._full(name, match) for name in fresh if (match := _OOM.fullmatch(name)) is not None]
        return sorted((each for each in failed if each.rank != self._rank), key=lambda each: each.rank)

    def killed(self) -> list[Fallen]:
        """The ranks of this node whose processes are gone since `begin`, without a word."""
        gone = [(place_of(name), self._gone(name)) for name in self._list() if name not in self._known]
        return [Fallen(rank=place[0], pid=pid) for place, pid in gone if place is not None and pid is not None]

    def failed(self, *, dead: bool = False) -> list[Fallen]:
        """The ranks that failed since `begin` by an error of their own.

        Args:
            dead: Whether to name only those of this node whose processes are gone, which asks for few files.
        """
        return [each for each in self._ended(dead=dead) if str(each.ended).startswith(_FAILURES)]

    def finished(self) -> list[Fallen]:
        """The ranks that finished since `begin`."""
        return [each for each in self._ended() if each.ended == "finished"]

    def _ended(self, *, dead: bool = False) -> list[Fallen]:
        """Of the newest recording of each rank those that ended since `begin`, and not because of another rank."""
        newest = {place[0]: name for name in self._list() if (place := self._place(name)) is not None}
        ended = []
        for rank, name in newest.items():
            if name in self._known or (dead and not self._is_dead(name)):
                continue
            end = end_of(self._lines_of(name))
            if end is not None and end.reason and not end.followed:
                ended.append(Fallen(rank=rank, batch=max(end.batches - 1, 0), ended=end.reason))
        return ended

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

    def _full(self, name: str, match: re.Match[str]) -> Fallen:
        rank, batch = int(match[1]), int(match[2])
        path = self._folder / name / "report.json"
        try:
            told = json.loads(path.read_text())
            cause = str(told["cause"])
        except (OSError, ValueError, KeyError, TypeError):  # not written yet, or never: that it ran out is known
            return Fallen(rank=rank, batch=batch)
        return Fallen(rank=rank, batch=batch, cause=cause, report=str(path.with_suffix(".md")))

    def _place(self, name: str) -> tuple[int, int] | None:
        """What the name of another rank's recording of its first device says; None for any other file."""
        place = place_of(name)
        return place if place is not None and place[0] != self._rank and not place[1] else None

    def _lines_of(self, name: str) -> Path:
        return (self._folder / name).with_suffix(".jsonl")

    def _is_dead(self, name: str) -> bool:
        """Whether the process that a recording is of ran on this node, and is no more."""
        if name not in self._pids:
            self._pids[name] = pid_in(self._lines_of(name))
        pid = self._pids[name]
        return pid is not None and not lives(pid)

    def _gone(self, name: str) -> int | None:
        """The process that a recording is of, if it ran on this node, is no more, and left no word."""
        if self._place(name) is None or not self._is_dead(name) or end_of(self._lines_of(name)) is not None:
            return None
        return self._pids[name]

    def _is_over(self, name: str) -> bool:
        """Whether a recording has its end, or will never have one."""
        if self._place(name) is None:
            return False
        end = end_of(self._lines_of(name))
        return self._is_dead(name) if end is None else bool(end.reason)


# What another rank's recording says about its process and its end.

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
