"""The ranks of a run in plain words: which is the worst and why, peaks over the ranks by batch, how each ended."""

from __future__ import annotations

from collections import Counter

from memguard.findings import Severity
from memguard.report.rank_causes import WorstRank
from memguard.report.runs import RankOnDisk, RunOnDisk
from memguard.report.text import columns, describe_peak, ranks_text
from memguard.summary import peak_height
from memguard.units import format_bytes

_STRETCHES = 6
_ROWS = 8


def rank_lines(run: RunOnDisk) -> list[str]:
    """The ranks beside each other as lines of text; nothing for a single one."""
    if run.spread is None:
        return []
    ranks = [run.ranks[rank] for rank in sorted(run.ranks)]
    lines = ["", *_worst(run.worst, ranks)]
    stretches = run.spread.stretches(_STRETCHES)
    if stretches:
        rows = [("batches", "lowest", "median", "highest")]
        rows += [
            (
                f"{each['first_batch']}-{each['last_batch']}",
                f"{format_bytes(each['min_bytes'])} (rank {each['min_rank']})",
                format_bytes(each["median_bytes"]),
                f"{format_bytes(each['max_bytes'])} (rank {each['max_rank']})",
            )
            for each in stretches
        ]
        lines += ["", "Peaks over the ranks by batch:", *(f"  {line}" for line in columns(rows))]
    lines += ["", *(f"  {line}" for line in columns(_table(ranks, run.worst)))]
    lines += ending_lines(ranks)
    return lines


def worst_lines(run: RunOnDisk) -> list[str]:
    """Which rank has the highest peak and why, as lines of text; nothing for a single rank."""
    worst = run.worst
    if run.spread is None:
        return []
    lines = _worst(worst, [run.ranks[rank] for rank in sorted(run.ranks)])
    return lines + [f"  why: {cause}" for cause in (worst.causes if worst is not None and worst.finding else ())]


def _worst(worst: WorstRank | None, ranks: list[RankOnDisk]) -> list[str]:
    nodes = {each.session.get("host") for each in ranks}
    head = f"{len(ranks)} ranks" + (f" on {len(nodes)} nodes" if len(nodes) > 1 else "")
    if worst is None:
        return [f"{head}."]
    low, high = format_bytes(worst.lowest_bytes), format_bytes(worst.peak_bytes)
    lines = [
        f"{head}: peaks from {low} (rank {worst.lowest_rank}) to {high}; the highest is rank {worst.rank}, at "
        f"{worst.stage.value} batch {worst.batch}, where the median rank stood at {format_bytes(worst.median_bytes)}."
    ]
    if worst.finding is None:  # else MG603 tells it
        lines += [f"  why: {cause}" for cause in worst.causes]
    if not worst.causes and worst.peak_bytes > 1.05 * worst.median_bytes:
        lines.append("  why: not in its inputs and findings; look for what only this rank does (logging, sampling)")
    return lines


def _table(ranks: list[RankOnDisk], worst: WorstRank | None) -> list[tuple[str, ...]]:
    """The ranks that matter: fallen ones first, then the highest peaks; the lowest last."""
    order = sorted(
        ranks, key=lambda each: (each.summary.oom is None, [-part for part in peak_height(each.summary.peak)])
    )
    shown = order if len(order) <= _ROWS else [*order[: _ROWS - 1], order[-1]]
    rows: list[tuple[str, ...]] = [("rank", "node", "device", "peak", "at", "batches", "findings", "ended")]
    for each in shown:
        summary, peak = each.summary, each.summary.peak
        height = peak.allocated_bytes if peak.allocated_bytes is not None else peak.host_rss_bytes
        rows.append(
            (
                str(each.rank),
                str(each.session.get("node", "-")),
                summary.device,
                format_bytes(height) if height is not None else "-",
                describe_peak(peak),
                str(summary.batches),
                _severities(each),
                _ended(each),
            )
        )
        for further in summary.devices:
            high = further.peak.allocated_bytes
            shown_peak = format_bytes(high) if high is not None else "-"
            rows.append(("", "", further.device, shown_peak, describe_peak(further.peak), "", "", ""))
    if len(order) > _ROWS:
        rows.insert(_ROWS, ("...", "", "", "", f"{len(order) - _ROWS} more ranks in between", "", "", ""))
    return rows


def _severities(each: RankOnDisk) -> str:
    counts = Counter(finding.severity for finding in each.summary.findings)
    return ", ".join(f"{counts[level]} {level.value}" for level in reversed(Severity) if counts[level]) or "-"


def _ended(each: RankOnDisk) -> str:
    if each.summary.oom is not None:
        return "out of memory"
    return each.summary.ended or "without a word"


def ending_lines(ranks: list[RankOnDisk]) -> list[str]:
    """Who fell first, and who stopped because of that; nothing where all finished."""
    lines = []
    failed = [each for each in ranks if each.summary.oom is not None]
    silent = [each for each in ranks if each.summary.ended is None and each.summary.oom is None]
    told = {peer["rank"] for each in ranks for peer in each.peers if isinstance(peer.get("rank"), int)}
    for each in sorted(failed, key=lambda each: (each.summary.oom or {}).get("time") or 0):
        oom = each.summary.oom or {}
        lines.append(
            f"Rank {each.rank} ran out of memory in {oom.get('stage', 'batch')} batch {oom.get('batch', '?')}: "
            f"{oom.get('cause', 'see its report')}"
        )
    if silent and len(silent) < len(ranks):
        timed = [each.last_time for each in ranks if each.last_time is not None]
        for each in sorted(silent, key=lambda each: each.last_time or 0)[:4]:
            before = f", {max(timed) - each.last_time:.1f} s before the last record of all" if each.last_time else ""
            after = max(each.summary.batches - 1, 0)
            lines.append(f"Rank {each.rank} ended without a word after batch {after}{before}.")
        if len(silent) > 4:
            lines.append(f"So did {ranks_text([each.rank for each in silent[4:]])}.")
    elif len(silent) == len(ranks):
        lines.append("All ranks ended without a word: killed from outside, or they still run.")
    if told:
        by = [each.rank for each in ranks if each.peers]
        lines.append(f"{ranks_text(by).capitalize()} stopped because {ranks_text(sorted(told))} fell.")
    return ["", *lines] if lines else []
