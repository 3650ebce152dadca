"""What a run's process says at its end: its summary, on rank 0 together with how the ranks compare."""

from __future__ import annotations

from pathlib import Path

from memguard.launch import Launch
from memguard.report.text import render
from memguard.summary import Summary

_MOST_RANKS = 64
"""Of more ranks ``memguard report`` tells, afterwards: nobody waits for rank 0 to read hundreds of files."""


def closing_text(launch: Launch, summary: Summary) -> str | None:
    """The text; None on a rank other than 0, whose recording says it all.

    The other ranks may still be at their last batches: they are compared as they stand.
    """
    if launch.rank:
        return None
    text = render(summary)
    if not 1 < launch.world_size <= _MOST_RANKS or summary.recording is None:
        return text
    try:
        from memguard.report.rank_text import worst_lines
        from memguard.report.runs import load_run

        lines = worst_lines(load_run([str(Path(summary.recording).parent)]))
    except Exception:  # no numpy, another rank's file half written: the summary stands without it
        lines = []
    return "\n".join([text, *lines])
