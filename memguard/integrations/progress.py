"""A short memory text in Lightning's progress bar."""

from __future__ import annotations

from typing import Any, final

from memguard.integrations.session import Session
from memguard.units import GIB


@final
class ProgressText:
    """Adds ``mem=5.1/24.0 GiB`` to what the Trainer's progress bar shows.

    Args:
        trainer: The Trainer; one without a progress bar is left alone.
        session: Knows the last record.
    """

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
        text = memory_text(self._session)
        if text is not None and isinstance(metrics, dict):
            metrics = {**metrics, "mem": text}
        return metrics


def memory_text(session: Session) -> str | None:
    """The newest peak and the device's size, like ``"5.1/24.0 GiB"``; RAM where the device tells nothing."""
    records = session.recorder.records
    if not records:
        return None
    last = records[-1]
    used = last.allocated_peak_bytes if last.allocated_peak_bytes is not None else last.host_rss_bytes
    if used is None:
        return None
    total = session.recorder.run.device_total_bytes
    return f"{used / GIB:.1f}/{total / GIB:.1f} GiB" if total else f"{used / GIB:.1f} GiB"
