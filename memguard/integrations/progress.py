"""A short memory text: in Lightning's progress bar, and on a terminal beside `guard.batches`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TextIO, final

from memguard.clocks import monotonic
from memguard.integrations.session import Session
from memguard.text.terminal import StatusLine
from memguard.text.units import format_bytes


@final
class ProgressText:
    """Adds ``mem=5.1/24.0 GiB`` to what the Trainer's progress bar shows."""

    def __init__(self, trainer: Any, session: Session) -> None:
        self._bar = getattr(trainer, "progress_bar_callback", None)
        self._session = session
        if self._bar is not None:
            self._metrics = self._bar.get_metrics
            self._bar.get_metrics = self._with_memory

    def remove(self) -> None:
        """Takes the text away; a second call does nothing."""
        if self._bar is not None:
            self._bar.__dict__.pop("get_metrics", None)
            self._bar = None

    def _with_memory(self, *args: Any, **kwargs: Any) -> Any:
        metrics = self._metrics(*args, **kwargs)
        with contextlib.suppress(Exception):  # this is the user's progress bar
            text = memory_text(self._session)
            if text is not None and isinstance(metrics, dict):
                return {**metrics, "mem": text}
        return metrics


@final
class BatchLine:
    """One line on a terminal that counts the batches of a loop and shows the memory; silent elsewhere.

    Args:
        session: Knows the last record.
        length: How many batches there will be, where known.
        stream: The terminal; None is stderr.
        clock: Seconds; tests bring their own.
    """

    PERIOD = 0.2
    """Seconds between two lines."""

    def __init__(
        self,
        session: Session,
        length: int | None,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._session, self._length, self._clock = session, length, clock
        self._line = StatusLine(stream)
        self._shows = session.options.progress and self._line.shows
        self._last = float("-inf")

    def show(self, index: int) -> None:
        """The loop is at this batch, counted from 0."""
        if not self._shows or self._clock() - self._last < self.PERIOD:
            return
        self._last = self._clock()
        of = f"/{self._length}" if self._length is not None else ""
        memory = memory_text(self._session)
        self._line.show(f"batch {index + 1}{of}" + (f"  mem {memory}" if memory else ""))

    def end(self) -> None:
        """The loop is over: the line goes away."""
        self._line.clear()


def memory_text(session: Session) -> str | None:
    """The newest peak and the device's size, like ``"5.10/24.0 GiB"``; RAM where the device tells nothing."""
    records = session.recorder.records
    if not records:
        return None
    last = records[-1]
    used = last.allocated_peak_bytes if last.allocated_peak_bytes is not None else last.host_rss_bytes
    if used is None:
        return None
    total = session.recorder.run.device_total_bytes
    if not total:
        return format_bytes(used)
    part, whole = format_bytes(used), format_bytes(total)
    unit = whole.rpartition(" ")[2]
    return f"{part.removesuffix(unit).rstrip()}/{whole}"
