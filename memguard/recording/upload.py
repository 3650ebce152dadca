"""Copies a process's files of a run to its directory behind a URL, from a thread of its own. No torch.

A store that does not answer costs the training nothing: it is asked again, ever more rarely, and what could not be
copied stays on the local disk, from where the next start on this machine copies it too.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import final

from memguard.clocks import monotonic
from memguard.recording.destination import Destination
from memguard.recording.format import FOLDER, HEADER_BYTES, PACK, RECORD_BYTES, place_of
from memguard.recording.remote import RemoteFolder, reason_of
from memguard.text.urls import shown

logger = logging.getLogger("memguard")

PERIOD_SECONDS = 30.0
APPEND_SECONDS = 10.0
"""The same where only what is new is copied."""
RANKS_PER_SECOND = 10
"""So many ranks of a run copy in a second, however many it has."""
BYTES_PER_SECOND = 32 << 10
"""Of a file that must be written as a whole each time; ever longer files are copied ever more rarely."""
LONGEST_PAUSE_SECONDS = 300.0
"""Between attempts where a store does not answer."""
_FIRST_PAUSE_SECONDS = 2.0
_LAST_ATTEMPTS, _LAST_PAUSE_SECONDS = 3, 1.0
_PROCESS_SECONDS = 60.0


@final
class Uploader:
    """Copies what this process writes, between `start` and `finish`.

    Args:
        destination: Where the run is written, and where it is copied to.
        rank: This process's rank: it copies the files of that rank; rank 0 also those that are of no rank.
        world_size: How many ranks share the store.
        owns: Whether the lines of a recording of this rank are this process's own, or those of one that is gone.
        wait: Waits some seconds, or until there is something to do; returns whether there is; tests bring their own.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        destination: Destination,
        *,
        rank: int,
        world_size: int,
        owns: Callable[[Path], bool],
        wait: Callable[[float], bool] | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        if destination.url is None:
            raise ValueError("a run in a local directory is copied to nowhere")
        self._local, self._url, self._rank = destination.local, destination.url, rank
        self._owns, self._clock = owns, clock
        self._ranks_seconds = world_size / RANKS_PER_SECOND
        self._remote: RemoteFolder | None = None
        self._sent: dict[str, tuple[int, int]] = {}
        """Of each file the size, and the time of its last change, that the store has."""
        self._due: dict[str, float] = {}
        self._earlier: dict[str, int] = {}
        self._first_batch = 0
        self._pid, self._thread = os.getpid(), None
        self._wake, self._begun, self._last = threading.Event(), threading.Event(), threading.Event()
        self._wait = wait if wait is not None else self._wake.wait
        self._told = False
        self.problem: str | None = None
        """Why the newest attempt failed; None where it did not."""

    _thread: threading.Thread | None

    def start(self) -> None:
        """Begins to copy, in a daemon thread."""
        self._thread = threading.Thread(target=self._run, name="memguard-upload", daemon=True)
        self._thread.start()

    def first_batch(self, seconds: float) -> int:
        """The number after the last batch that this rank's earlier starts left there; 0 where it does not answer.

        Args:
            seconds: How long to wait for its answer.
        """
        self._begun.wait(seconds)
        return self._first_batch

    def at_once(self) -> None:
        """Something happened that others should see: all that is there is copied now, by the thread."""
        self._due.clear()
        self._wake.set()

    def finish(self, seconds: float) -> str | None:
        """Copies the rest and ends the thread.

        Args:
            seconds: How long to wait for that; 0 lets it go on.

        Returns:
            Why not everything was copied, None where it was; "it is still being copied" where it was not waited for.
        """
        if os.getpid() != self._pid or self._thread is None:
            return None
        self._last.set()
        self._wake.set()
        self._thread.join(seconds)
        if self._thread.is_alive():
            return f"no answer for {seconds:.0f} s" if seconds else "it is still being copied"
        return self.problem

    def _run(self) -> None:
        pause, attempts = _FIRST_PAUSE_SECONDS, 0
        while True:
            self._wake.clear()  # before the question that it may wake for
            is_last = self._last.is_set()
            if is_last:
                self._due.clear()
                attempts += 1
            try:
                self._copy()
                self.problem, pause = None, _FIRST_PAUSE_SECONDS
            except Exception as error:
                self.problem = reason_of(error)
                if is_last and "shutdown" in self.problem and self._copy_in_process():
                    self.problem = None
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
                self._tell_problem()
            finally:
                self._begun.set()
            if is_last and (self.problem is None or attempts == _LAST_ATTEMPTS):
                return
            self._wait(_LAST_PAUSE_SECONDS if is_last else pause if self.problem is not None else self._period())

    def _period(self) -> float:
        appends = self._remote is not None and self._remote.appends
        return max(APPEND_SECONDS if appends else PERIOD_SECONDS, self._ranks_seconds)

    def _tell_problem(self) -> None:
        if not self._told and not self._last.is_set():  # at the end the summary says so
            self._told = True
            logger.warning(
                "memguard: nothing can be copied to %s (%s); it is tried again. The recording is in %s meanwhile.",
                ascii(shown(self._url)),
                self.problem,
                self._local,
            )

    def _copy(self) -> None:
        """Copies every file of this process that has grown and is due."""
        if self._remote is None:
            self._remote = self._look()
        for path, name in self._files():
            self._copy_file(self._remote, path, name)

    def _look(self) -> RemoteFolder:
        """What the store has of this rank's earlier starts."""
        remote = RemoteFolder(self._url)
        self._earlier = {f"{FOLDER}/{name}": size for name, size in remote.sizes(FOLDER).items()}
        newest = max((name for name in self._earlier if self._is_first_device(name)), default=None)
        count = (self._earlier[newest] - HEADER_BYTES) // RECORD_BYTES if newest is not None else 0
        if newest is not None and count > 0:
            start = HEADER_BYTES + (count - 1) * RECORD_BYTES
            self._first_batch = int(PACK.unpack(remote.read(newest, start, start + RECORD_BYTES))[0]) + 1
        return remote

    def _is_first_device(self, name: str) -> bool:
        return place_of(name.rpartition("/")[2]) == (self._rank, 0)

    def _copy_file(self, remote: RemoteFolder, path: Path, name: str) -> None:
        try:
            found = path.stat()
            before = self._sent.get(name)
            if before == (found.st_size, found.st_mtime_ns) or self._clock() < self._due.get(name, 0.0):
                return
            if before is None and path.suffix in (".bin", ".jsonl") and self._earlier.get(name) == found.st_size:
                self._sent[name] = (found.st_size, found.st_mtime_ns)
                return
            offset = before[0] if before is not None and remote.appends and found.st_size > before[0] else 0
            with open(path, "rb") as file:
                file.seek(offset)
                data = file.read(found.st_size - offset)
        except OSError:  # gone meanwhile, or not ours to read: the other files are copied
            return
        remote.write(name, data, appended=offset > 0)
        self._sent[name] = (offset + len(data), found.st_mtime_ns)
        if not remote.appends:
            self._due[name] = self._clock() + len(data) / BYTES_PER_SECOND

    def _files(self) -> Iterator[tuple[Path, str]]:
        """The files of this process, and of those of its rank that are gone, with their names in the store."""
        folder = self._local / FOLDER
        for path in _listed(folder):
            if path.name.startswith(f"rank{self._rank:05d}-") and path.suffix in (".bin", ".jsonl"):
                if self._owns(path.with_suffix(".jsonl")):
                    yield path, f"{FOLDER}/{path.name}"
            elif path.name.startswith(f"oom-rank{self._rank:05d}-"):
                yield from ((each, f"{FOLDER}/{path.name}/{each.name}") for each in _listed(path) if each.is_file())
        if self._rank == 0:
            for path in _listed(self._local):
                if path.name.startswith("events.out.tfevents."):
                    yield path, path.name

    def _copy_in_process(self) -> bool:
        """Copies the rest from a new process: as Python ends, some file systems can start no thread any more."""
        names = [name for path, name in self._files() if _state(path) != self._sent.get(name)]
        request = json.dumps({"url": self._url, "local": str(self._local), "names": names})
        try:
            done = subprocess.run(
                [sys.executable, "-m", "memguard.recording.upload"],
                input=request.encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_PROCESS_SECONDS,
                check=False,
            )
        except (OSError, RuntimeError, subprocess.SubprocessError):
            return False
        return done.returncode == 0


def copy_files(url: str, local: Path, names: Sequence[str]) -> None:
    """Copies some files of a run, each as a whole.

    Raises:
        Exception: The file system's own.
    """
    remote = RemoteFolder(url)
    for name in names:
        remote.write(name, (local / name).read_bytes())


def _state(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


if __name__ == "__main__":
    given = json.load(sys.stdin)
    copy_files(given["url"], Path(given["local"]), given["names"])
