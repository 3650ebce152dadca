"""Processes that a guarded script starts: `memguard run` guards them and reports on all.

What ``mp.spawn`` or a `Process` of the script calls is called inside of a guard in the new process, which records
into a directory of its own choice, as a rank of torchrun does, and leaves the place of its recording. The script's
process reads these at the end. Workers of loaders and pools are left alone: they do not train. Not seen are processes
of a class with a `run` of its own, and those that are started by other means. No torch: a process may do without.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from memguard.errors import RecordingError
from memguard.records.summary import Summary

if TYPE_CHECKING:
    from memguard.integrations.script import ScriptGuard

logger = logging.getLogger("memguard")

_LEFT_ALONE = (
    "multiprocessing",
    "concurrent",
    "torch.utils",
    "torch._inductor",
    "joblib",
    "loky",
    "billiard",
    "memguard",
)
"""Packages whose processes serve others."""


@final
class StartedProcesses:
    """Has the processes that the script starts guarded, between `install` and `remove`.

    Args:
        options: The settings by name, as `Options.make` takes them.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._folder: Path | None = None
        self._pid = os.getpid()
        self._start: Any = None
        self._ours: Any = None

    def install(self) -> None:
        """Stands before `start` of all processes."""
        start: Any = BaseProcess.start

        def start_guarded(process: BaseProcess) -> None:
            attributes, target = vars(process), vars(process).get("_target")
            guarded = self._guarded(target)
            if guarded is not None:
                attributes["_target"] = guarded
            try:
                start(process)
            finally:
                if "_target" in attributes:  # what was started lets go of it
                    attributes["_target"] = target

        self._start, self._ours = start, start_guarded
        self._stand(start_guarded)

    def remove(self) -> list[Summary]:
        """Steps aside; what the guards of the processes recorded, in the order in which they began."""
        if self._start is not None and BaseProcess.start is self._ours:  # else someone stands before us
            self._stand(self._start)
        self._start = None
        folder, self._folder = self._folder, None
        if folder is None or os.getpid() != self._pid:  # a child of os.fork ends here as well: it is the parent's
            return []
        try:
            return _read(folder)
        except Exception as error:  # the script may have cleared the temporary folder, its exit code stays its own
            logger.warning("memguard: what the started processes recorded cannot be read: %s", error)
            return []
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _stand(self, start: Any) -> None:
        BaseProcess.start = start  # type: ignore[method-assign]

    def _guarded(self, target: object) -> Guarded | None:
        module = getattr(target, "__module__", None)
        if self._start is None or not callable(target) or not isinstance(module, str):
            return None
        if f"{module}.".startswith(tuple(f"{package}." for package in _LEFT_ALONE)):
            return None
        try:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="memguard-"))
            return Guarded(target, self._options, str(self._folder))
        except OSError as error:
            logger.warning("memguard: a process that the script starts is not guarded: %s", error)
            return None


@final
class Guarded:
    """What a started process calls: the script's own function, inside of a guard.

    Args:
        target: The function.
        options: The settings by name.
        folder: Where the places of recordings are left.
    """

    def __init__(self, target: Callable[..., object], options: dict[str, Any], folder: str) -> None:
        self.target, self.options, self.folder = target, options, folder

    def __call__(self, *args: Any, **kwargs: Any) -> object:
        """Calls it. A process that has no torch by now is not guarded."""
        if "torch" not in sys.modules:
            return self.target(*args, **kwargs)
        from memguard.integrations.session import on_open

        reason, tell, guard = "finished", self._tell_place, self._begin()
        on_open.append(tell)
        try:
            return self.target(*args, **kwargs)
        except BaseException as error:
            reason = f"an exception: {type(error).__name__}"
            raise
        finally:
            if guard is not None:
                self._end(guard, reason)
            with contextlib.suppress(ValueError):
                on_open.remove(tell)

    def _begin(self) -> ScriptGuard | None:
        try:
            from memguard.integrations.script import ScriptGuard
            from memguard.options import Options

            guard = ScriptGuard(Options.make(**self.options))
            guard.install(at_once=False)
            return guard
        except Exception as error:
            logger.error("memguard: this process is not guarded: %s: %s", type(error).__name__, error)
            return None

    def _end(self, guard: ScriptGuard, reason: str) -> None:
        try:
            guard.remove(reason)
        except Exception as error:
            logger.error("memguard: the guard of this process did not end: %s: %s", type(error).__name__, error)

    def _tell_place(self) -> None:
        """A session begins in this process: leaves the place of its recording."""
        from memguard.integrations.session import open_sessions

        sessions = open_sessions()
        recording = sessions[-1].recorder.recording if sessions else None
        if recording is not None:
            with open(Path(self.folder) / str(os.getpid()), "a", encoding="utf-8") as places:
                places.write(f"{recording.path.absolute()}\n")


def _read(folder: Path) -> list[Summary]:
    from memguard.recording.reader import Recording
    from memguard.report.summaries import summarize

    summaries = []
    for places in sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns):
        for place in places.read_text(encoding="utf-8").splitlines():
            with contextlib.suppress(RecordingError, OSError):
                summaries.append(summarize(Recording.open(place)))
    return summaries
