"""A thread that reads what is too costly to read in every batch."""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import final

from memguard.clocks import perf_counter
from memguard.records.stats import SlowStats

logger = logging.getLogger("memguard")

_SHARE = 0.02
EARLY_SECONDS = 60.0
"""After that readings come as rarely as `LATER_SHARE` of a core asks for, though never farther apart than this:"""
LATER_SHARE, FARTHEST_SECONDS = 0.0002, 5.0
_TIGHT = 0.8
"""Of the host's memory in use: then every second matters."""


def is_tight(stats: SlowStats) -> bool:
    """Whether the host's memory, or the shared memory of loaders, is nearly used up."""
    used, limit, free, total = (
        stats.host_used_bytes,
        stats.host_limit_bytes,
        stats.shm_free_bytes,
        stats.shm_total_bytes,
    )
    host = used is not None and limit is not None and used > _TIGHT * limit
    return host or (free is not None and total is not None and total - free > _TIGHT * total)


def _never(stats: SlowStats) -> bool:
    """Of a reader that failed: nothing presses any more."""
    return False


@final
class SlowLane:
    """Calls a reader about once a second, in a daemon thread, and holds its newest answer.

    It never takes more than a fiftieth of a core: a slow reader is asked less often. After the first minute it takes a
    hundredth of that, with a reading every few seconds, unless something presses. A reader that fails is logged once
    and asked no more; the last answer stays. A forked child has no such thread, only the last answer.

    Args:
        read: The reader, `Backend.read_slow`.
        errands: What else this thread does after each reading, such as sending metrics. Each paces itself, and its time
            does not make the readings rarer; one that fails is logged once and dropped.
        period: Seconds between two readings.
        presses: Whether readings must stay as close as at first, given the newest one.
        wait: Waits some seconds and tells whether the lane was stopped meanwhile; tests bring their own.
        clock: Seconds, to time the reader.
    """

    def __init__(
        self,
        read: Callable[[], SlowStats],
        *,
        errands: Sequence[Callable[[], object]] = (),
        period: float = 1.0,
        presses: Callable[[SlowStats], bool] = is_tight,
        wait: Callable[[float], bool] | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._read, self._period, self._presses, self._clock = read, period, presses, clock
        self._errands = list(errands)
        self._stopped = threading.Event()
        self._wait = wait if wait is not None else self._stopped.wait
        self._newest = SlowStats()
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether the thread is alive in this process."""
        return self._thread is not None and self._thread.is_alive()

    def newest(self) -> SlowStats:
        """The newest reading; all unknown before the first."""
        return self._newest

    def start(self) -> None:
        """Starts the thread; it reads at once. A second call does nothing."""
        if self.running:
            return
        self._stopped.clear()
        self._thread = _LaneThread(self._run, self.stop)
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread; waits at most a second for a reading under way."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(1.0)
        self._thread = None

    def _run(self) -> None:
        pause, first = 0.0, None
        while not (self._stopped.is_set() or (pause and self._wait(pause))):
            began = self._clock()
            try:
                newest = self._newest = self._read()
                presses = self._presses(newest)
            except Exception:
                if not self._stopped.is_set():
                    logger.error(  # as text: a log handler that kept the exception would keep its frames
                        "memguard's slow lane failed and is off; device use and host memory stay as read last.\n%s",
                        traceback.format_exc().rstrip(),
                    )
                if not self._errands:
                    return
                self._read, self._presses, presses = self.newest, _never, False
            took = self._clock() - began
            pause = max(self._period, took / _SHARE)
            first = began if first is None else first
            if began - first >= EARLY_SECONDS and not presses:
                pause = max(pause, min(took / LATER_SHARE, FARTHEST_SECONDS))
            for errand in tuple(self._errands):
                try:
                    errand()
                except Exception:
                    self._errands.remove(errand)
                    logger.error(
                        "memguard's slow lane dropped a part that failed.\n%s", traceback.format_exc().rstrip()
                    )


@final
class _LaneThread(threading.Thread):
    """Knows how it is stopped: test suites that look after threads stop those with a ``stop``."""

    def __init__(self, run: Callable[[], None], stop: Callable[[], None]) -> None:
        super().__init__(target=run, name="memguard-slow-lane", daemon=True)
        self.stop = stop
