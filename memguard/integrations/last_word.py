"""What a process prints at its end: its summary, and on rank 0 the worst of all ranks."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memguard.integrations.peers import end_of, lives, pid_in
from memguard.launch import Launch
from memguard.records.findings import Finding, Severity
from memguard.records.summary import Summary
from memguard.report.text import render
from memguard.text.terminal import fold_lines, terminal_of

if TYPE_CHECKING:
    from memguard.report.runs import RunOnDisk

_MOST_RANKS = 512
"""Of more ranks ``memguard report`` tells, afterwards: rank 0 would read thousands of files, for many seconds."""
_MOST_READERS = 64
"""Of more ranks rank 0 alone reads what the others left: all would read all."""
_PATIENCE_SECONDS = 1.0
"""Ranks of one run end within moments; rank 0 waits no longer for their last findings."""
_STEP_SECONDS = 0.02


def closing_text(launch: Launch, summary: Summary, *, ranks: int = 1) -> str | None:
    """The last word of a process.

    On rank 0 that is its summary with the findings of all ranks, each with its rank. On another rank it is one line
    with the worst finding of all ranks, where this rank is the last to end; else None.

    Args:
        launch: This process's place.
        summary: What it says; on rank 0 the other ranks' findings join it.
        ranks: Of how many ranks that is; more than one where this process started them.
    """
    lines: list[str] = []
    count, most = max(launch.world_size, ranks), _MOST_READERS if launch.rank else _MOST_RANKS
    if 1 < count <= most and summary.recording is not None:
        try:
            from memguard.report.rank_text import verdict_lines, worst_lines
            from memguard.report.runs import load_run

            folder = Path(summary.recording).parent
            if not launch.rank:
                _wait_for_others(folder)
            run = load_run([str(folder)])
            if launch.rank:
                return _last_of_all(run, launch)
            lines = [*worst_lines(run), *verdict_lines(run)]
            if run.worst is not None and run.worst.finding is not None:
                summary.findings.append(run.worst.finding)
                lines = [*worst_lines(run)[:1], *verdict_lines(run)]  # it says why itself
            _take_in(summary, run)
        except Exception:  # no numpy, another rank's file half written: the summary stands without it
            pass
    width, colours = terminal_of(sys.stderr)
    folded = fold_lines("\n".join(lines), width) if lines else []
    return None if launch.rank else "\n".join([render(summary, ranks=ranks, width=width, colours=colours), *folded])


def _wait_for_others(folder: Path) -> None:
    """Waits a moment for the other ranks of this host that still run."""
    newest = {path.name.partition("-")[0]: path for path in sorted(folder.glob("rank*.jsonl"))}
    waiting = [path for path in newest.values() if pid_in(path) != os.getpid()]
    until = time.monotonic() + _PATIENCE_SECONDS
    while waiting := [path for path in waiting if end_of(path) is None and _runs_here(path)]:
        if time.monotonic() > until:
            return
        time.sleep(_STEP_SECONDS)


def _runs_here(path: Path) -> bool:
    pid = pid_in(path)
    return pid is not None and lives(pid)


def _take_in(summary: Summary, run: RunOnDisk) -> None:
    """What other ranks found and rank 0 did not, and that one of them ran out of memory."""
    known = {(finding.cause, finding.rank) for finding in summary.findings}
    summary.findings += [
        finding
        for finding in run.summary.findings
        if finding.rank != summary.rank and finding.code != "MG603" and (finding.cause, finding.rank) not in known
    ]
    if summary.oom is None and run.summary.oom is not None:
        summary.oom = run.summary.oom


def _last_of_all(run: RunOnDisk, launch: Launch) -> str | None:
    """The worst of all ranks in a line, on the rank that ends last; None without a warning.

    Ranks that end within moments each see that all have ended. All of them find the same times in the recordings, so
    they agree on which one was last; where rank 0 was, its summary has the rest.
    """
    others = [each for rank, each in run.ranks.items() if rank != launch.rank]
    if len(run.ranks) < launch.world_size or any(each.summary.ended is None for each in others):
        return None
    if max(run.ranks, key=lambda rank: (run.ranks[rank].end_time or 0.0, rank)) != launch.rank:
        return None
    if run.summary.oom is not None:
        oom = run.summary.oom
        return (
            f"memguard: all {len(run.ranks)} ranks have ended. Rank {oom.get('rank', '?')} ran out of memory: "
            f"{oom.get('cause', 'see its report')}"
        )
    worst = worst_of(run.summary.findings)
    if worst is None:
        return None
    return (
        f"memguard: all {len(run.ranks)} ranks have ended. The worst finding is on rank {worst.rank}: {worst.code} "
        f"{worst.name}: {worst.text}"
    )


def worst_of(findings: Sequence[Finding]) -> Finding | None:
    """The most severe finding, of equal ones that with the most bytes; None where all are for information."""
    order = list(Severity)
    told = [finding for finding in findings if finding.severity is not Severity.INFO]
    return max(told, key=lambda each: (order.index(each.severity), each.bytes or 0), default=None)
