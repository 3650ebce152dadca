"""The ranks of a run in plain words: which is the worst and why, peaks over the ranks by batch, how each ended."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from memguard.axes import places_in
from memguard.records.findings import Severity
from memguard.records.summary import peak_height
from memguard.report.rank_causes import WorstRank
from memguard.report.rank_endings import ending_lines
from memguard.report.runs import RankOnDisk, RunOnDisk
from memguard.report.text import columns, describe_peak
from memguard.text.units import format_bytes

_STRETCHES = 6
_ROWS = 8


def rank_lines(run: RunOnDisk) -> list[str]:
    """The ranks beside each other as lines of text; nothing for a single one."""
    if run.spread is None:
        return []
    ranks = [run.ranks[rank] for rank in sorted(run.ranks)]
    lines = ["", *_worst(run.worst, ranks), *verdict_lines(run)]
    rows = _by_batch(run.spread.stretches(_STRETCHES))
    if rows:
        lines += ["", "Peaks over the ranks by batch:", *(f"  {line}" for line in columns(rows))]
    lines += ["", *(f"  {line}" for line in columns(_table(ranks, run.worst)))]
    lines += ending_lines(ranks)
    return lines


def verdict_lines(run: RunOnDisk) -> list[str]:
    """The verdict by axis, a line for each group that differs; nothing where all ranks are alike."""
    return [f"  {each.text}" for each in run.verdicts]


def _by_batch(stretches: list[dict[str, int]]) -> list[tuple[str, ...]]:
    """The table of stretches; none where all ranks stood alike in each of them."""
    rows = [
        (
            f"{each['first_batch']}-{each['last_batch']}",
            f"{format_bytes(each['min_bytes'])} (rank {each['min_rank']})",
            format_bytes(each["median_bytes"]),
            f"{format_bytes(each['max_bytes'])} (rank {each['max_rank']})",
        )
        for each in stretches
    ]
    differ = any(format_bytes(each["min_bytes"]) != format_bytes(each["max_bytes"]) for each in stretches)
    return [("batches", "lowest", "median", "highest"), *rows] if differ else []


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
    if low == high:
        return [f"{head}: all peak at {high}."]
    lines = [
        f"{head}: peaks from {low} (rank {worst.lowest_rank}) to {high}; the highest is rank {worst.rank}, at "
        f"{_place(worst, ranks)}, where the median rank had {format_bytes(worst.median_bytes)}."
    ]
    if worst.finding is None:  # else MG603 tells it
        lines += [f"  why: {cause}" for cause in worst.causes]
    if not worst.causes and worst.peak_bytes > 1.05 * worst.median_bytes:
        lines.append("  why: not in its inputs and findings; look for what only this rank does (logging, sampling)")
    return lines


def _place(worst: WorstRank, ranks: list[RankOnDisk]) -> str:
    """Where that peak stood, in the words in which the summary tells it."""
    peak = next(each.summary.peak for each in ranks if each.rank == worst.rank)
    if worst.peak_bytes in peak_height(peak):
        return describe_peak(replace(peak, shapes=None))
    return f"{worst.stage.value} batch {worst.batch}"


def _table(ranks: list[RankOnDisk], worst: WorstRank | None) -> list[tuple[str, ...]]:
    """The ranks that matter: fallen ones first, then the highest peaks; the lowest last."""
    order = sorted(
        ranks, key=lambda each: (each.summary.oom is None, [-part for part in peak_height(each.summary.peak)])
    )
    shown = order if len(order) <= _ROWS else [*order[: _ROWS - 1], order[-1]]
    rows: list[tuple[str, ...]] = [("rank", "node", "device", "peak", "at", "batches", "findings", "ended")]
    placed = any(each.session.get("coordinates") for each in ranks)
    for each in shown:
        summary, peak = each.summary, each.summary.peak
        height = peak.allocated_bytes if peak.allocated_bytes is not None else peak.host_rss_bytes
        rows.append(
            (
                f"{each.rank}{_coordinates(each)}" if placed else str(each.rank),
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


def _coordinates(each: RankOnDisk) -> str:
    places = places_in(each.session.get("coordinates"))
    return f" ({', '.join(f'{axis}={place}' for axis, place in places.items())})" if places else ""


def _severities(each: RankOnDisk) -> str:
    counts = Counter(finding.severity for finding in each.summary.findings)
    return ", ".join(f"{counts[level]} {level.value}" for level in reversed(Severity) if counts[level]) or "-"


def _ended(each: RankOnDisk) -> str:
    if each.summary.oom is not None:
        return "out of memory"
    return each.summary.ended or "without a word"
