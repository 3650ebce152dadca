"""What a run's process says at its end: its summary, on rank 0 together with how the ranks compare."""

from __future__ import annotations

from pathlib import Path

from memguard.launch import Launch
from memguard.report.text import render
from memguard.summary import Summary

_MOST_RANKS = 64
"""Of more ranks ``memguard report`` tells, afterwards: nobody waits for rank 0 to read hundreds of files."""


def closing_text(launch: Launch, summary: Summary, *, ranks: int = 1) -> str | None:
    """The text; None on a rank other than 0, whose recording says it all.

    Args:
        launch: This process's place.
        summary: What it says.
        ranks: Of how many ranks that is; more than one where this process started them.

    The other ranks may still be at their last batches: they are compared as they stand. Where that makes a finding, it
    joins the summary's.
    """
    if launch.rank:
        return None
    lines = []
    if 1 < max(launch.world_size, ranks) <= _MOST_RANKS and summary.recording is not None:
        try:
            from memguard.report.rank_text import worst_lines
            from memguard.report.runs import load_run

            run = load_run([str(Path(summary.recording).parent)])
            lines = worst_lines(run)
            if run.worst is not None and run.worst.finding is not None:
                summary.findings.append(run.worst.finding)
                del lines[1:]  # it says why itself
        except Exception:  # no numpy, another rank's file half written: the summary stands without it
            pass
    return "\n".join([render(summary, ranks=ranks), *lines])
