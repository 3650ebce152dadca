"""The copy of a run behind a URL, as part of a session: begun, hurried and ended with it."""

from __future__ import annotations

import atexit
import os
import threading
from pathlib import Path
from typing import final

from memguard.integrations.peers import lives, pid_in
from memguard.launch import Launch
from memguard.recorder import Recorder
from memguard.recording.destination import Destination
from memguard.recording.format import FOLDER
from memguard.recording.upload import Uploader
from memguard.sinks.console import print_text
from memguard.text.urls import shown

_FIRST_SECONDS = 3.0
"""How long the beginning of a run waits for the number of its first batch."""
LAST_SECONDS = 60.0
"""How long its end waits for the last copies."""


@final
class RunUpload:
    """Has a session's files copied to where its directory is; does nothing where that is a local one."""

    def __init__(self, destination: Destination, recorder: Recorder, launch: Launch) -> None:
        self._destination, self._recorder = destination, recorder
        self._rank, self._world_size = launch.rank, launch.world_size
        self._uploader: Uploader | None = None

    def begin(self) -> int:
        """The run begins; returns the number of its first batch, where earlier starts of this rank left one."""
        if self._destination.url is None:
            return 0
        self._uploader = Uploader(
            self._destination, rank=self._rank, world_size=self._world_size, owns=_is_ours_or_nobodys
        )
        self._uploader.start()
        return self._uploader.first_batch(_FIRST_SECONDS)

    def at_once(self) -> None:
        """Something happened that should be seen from elsewhere."""
        if self._uploader is not None:
            self._uploader.at_once()

    def end(self, *, failed: bool) -> None:
        """The recording is closed: its rest is copied.

        Args:
            failed: Whether an exception is under way: it is not held up, and the end of the process, where
                that is not what happens now, waits instead.
        """
        if self._uploader is None:
            return
        if failed and threading.main_thread().is_alive():
            self._uploader.finish(0)
            atexit.register(self._wait_at_exit)
            return
        problem = self._uploader.finish(LAST_SECONDS)
        self._uploader = None
        if problem is not None:
            self._recorder.summary.notes.append(self._words(problem))
            return
        summary = self._recorder.summary
        if self._destination.shared is None:
            summary.uploaded = shown(self._destination.url or "")
        elif summary.recording is not None:
            summary.recording = str(self._destination.shared / FOLDER / Path(summary.recording).name)

    def _wait_at_exit(self) -> None:
        uploader, self._uploader = self._uploader, None
        problem = uploader.finish(LAST_SECONDS) if uploader is not None else None
        if problem is not None:
            print_text(f"memguard: {self._words(problem)}")

    def _words(self, problem: str) -> str:
        return (
            f"not everything could be copied to {self._destination.told} ({problem}); the whole recording is in "
            f"{self._destination.local}"
        )


def _is_ours_or_nobodys(lines: Path) -> bool:
    """Whether a recording is this process's, or that of one that is gone and copies it no more."""
    pid = pid_in(lines)
    return pid is not None and (pid == os.getpid() or not lives(pid))
