"""All recordings below the logdir, found again and again, each read only as far as it grew."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, final

from memguard.errors import RecordingError
from memguard.recording.format import place_of
from memguard.report.html_details import details, summary
from memguard.report.html_index import RowIndex
from memguard.report.html_lines import LineIndex
from memguard.tensorboard_plugin.files import (
    GrowingFile,
    LocalFile,
    RemoteFile,
    RemoteFiles,
    files_below,
    roots,
    run_name,
    walk,
)
from memguard.text.urls import is_url


@final
class Process:
    """One process's run: its records and its lines, read as they grow."""

    def __init__(self, folder: str, data: GrowingFile, lines: GrowingFile, name: str) -> None:
        self.folder, self.name = folder, name
        self._data, self._lines = data, lines
        self.lines = LineIndex(lines.read, name.removesuffix(".bin") + ".jsonl")
        self.index: RowIndex | None = None
        self.problem = ""
        """Why it cannot be read; empty if it can."""
        self.version = 0
        """Grows with every change."""
        self._summary: tuple[int, dict[str, Any]] = (-1, {})
        self.ready = False
        """Whether it was read once."""
        self.lock = threading.RLock()

    def refresh(self) -> None:
        """Reads what was appended to both files."""
        with self.lock:
            size = self._data.size()
            changed = not self.ready
            if self.index is None:
                try:
                    self.index = RowIndex(self._data.read, self.name)
                    self.problem = ""
                except RecordingError as error:
                    self.problem = str(error)
            if self.index is not None:
                changed |= self.index.refresh(size)
            changed |= self.lines.refresh(self._lines.size())
            self.version += changed
            self.ready = True

    def details(self) -> dict[str, Any]:
        """All that the page shows besides curves and owners."""
        with self.lock:
            if self.index is None:
                raise RecordingError(self.problem)
            return details(self.index, self.lines, [])

    def summary(self) -> dict[str, Any]:
        """What the list of runs shows."""
        with self.lock:
            if self.index is None:
                return {"problem": self.problem}
            if self._summary[0] != self.version:
                self._summary = (self.version, summary(self.index, self.lines))
            return self._summary[1]


@dataclass(slots=True)
class Run:
    """A run's processes: for each start, newest first, its ranks."""

    folder: str
    processes: dict[int, list[Process]] = field(default_factory=dict)
    """By rank; the newest start first."""
    further: dict[tuple[int, int], list[Process]] = field(default_factory=dict)
    """The recordings of a process's further devices: by rank and position of the device, the newest start first."""

    def process(self, rank: int, start: int, device: int = 0) -> Process | None:
        """One rank's process on one of its devices; start 0 is its newest, device 0 the guarded one."""
        known = self.further.get((rank, device), []) if device else self.processes.get(rank, [])
        return known[start] if 0 <= start < len(known) else None

    def everything(self) -> list[Process]:
        """All processes of all ranks, on all devices."""
        return [each for known in (*self.processes.values(), *self.further.values()) for each in known]


@final
class Store:
    """The recordings of all runs; safe to ask from many threads."""

    def __init__(self, logdir: str, logdir_spec: str = "", *, clock: Callable[[], float] = time.monotonic) -> None:
        self._roots = roots(logdir, logdir_spec)
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[str, Run] = {}
        self._remote: dict[str, RemoteFiles] = {}
        self._scanned = -1e9
        self._patience = 2.0

    def runs(self) -> dict[str, Run]:
        """All runs by name; the directories are looked at again every two seconds (rarer where that is slow)."""
        with self._lock:
            now = self._clock()
            if now - self._scanned >= self._patience:
                self._scan()
                self._scanned = self._clock()
                self._patience = max(2.0, 10 * (self._scanned - now))
            return self._runs

    def process(self, run: str, rank: int, start: int, device: int = 0) -> Process | None:
        """One process, read up to date; None if there is none such."""
        known = self.runs().get(run)
        process = known.process(rank, start, device) if known else None
        if process is not None:
            process.refresh()
        return process

    def _scan(self) -> None:
        runs: dict[str, Run] = {}
        for prefix, root in self._roots:
            try:
                remote = self._remote_files(root) if is_url(root) else None
                for folder, names in walk(root, remote):
                    if names:
                        self._take(runs, run_name(prefix, root, folder), folder, names, remote)
            except Exception as error:  # a file system of any kind
                if not is_url(root):
                    raise
                del error
        self._runs = dict(sorted(runs.items()))

    def _remote_files(self, root: str) -> RemoteFiles:
        if root not in self._remote:
            self._remote[root] = files_below(root)
        return self._remote[root]

    def _take(self, runs: dict[str, Run], name: str, folder: str, names: list[str], remote: RemoteFiles | None) -> None:
        known = self._runs.get(name)
        old = {each.name: each for each in known.everything()} if known else {}
        run = runs.setdefault(name, Run(folder))
        for file in reversed(names):  # names carry the time: newest first
            place = place_of(file)
            if place is None:
                continue
            process = old.get(file)
            if process is None or process.folder != folder:
                paths = [f"{folder}/{file}", f"{folder}/{file.removesuffix('.bin')}.jsonl"]
                opened = [RemoteFile(path, remote) if remote is not None else LocalFile(path) for path in paths]
                process = Process(folder, opened[0], opened[1], file)
            rank, device = place
            listed = run.further.setdefault(place, []) if device else run.processes.setdefault(rank, [])
            listed.append(process)
