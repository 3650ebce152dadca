"""Two runs beside each other: what changed in peak, floor and findings."""

from __future__ import annotations

from typing import Any

from memguard.records.summary import Summary, peak_height
from memguard.text.units import format_bytes


def compare(before: Summary, after: Summary) -> dict[str, Any]:
    """How a run differs from an earlier one, as numbers and as lines of text."""
    lines = []
    column = 0 if after.peak.allocated_bytes is not None and before.peak.allocated_bytes is not None else 1
    word = "peak allocated" if column == 0 else "highest RAM"
    old, new = peak_height(before.peak)[column], peak_height(after.peak)[column]
    lines.append(_difference(word, old, new))
    for stage in after.stages:
        if stage in before.stages:
            pair = [peak_height(summary.stages[stage].peak)[column] for summary in (before, after)]
            lines.append(_difference(f"{word} in {stage.value}", *pair))
    if before.reserved_peak_bytes is not None and after.reserved_peak_bytes is not None:
        lines.append(_difference("peak reserved", before.reserved_peak_bytes, after.reserved_peak_bytes))
    known = {(finding.code, finding.holder, finding.line) for finding in before.findings}
    now = {(finding.code, finding.holder, finding.line) for finding in after.findings}
    fresh = [f for f in after.findings if (f.code, f.holder, f.line) not in known]
    gone = [f for f in before.findings if (f.code, f.holder, f.line) not in now]
    lines += [f"new: {finding.code} {finding.name}: {finding.message}" for finding in fresh]
    lines += [f"gone: {finding.code} {finding.name}: {finding.message}" for finding in gone]
    return {
        "peak_difference_bytes": new - old,
        "new_findings": [finding.to_json() for finding in fresh],
        "gone_findings": [finding.to_json() for finding in gone],
        "lines": lines,
    }


def _difference(word: str, old: int, new: int) -> str:
    if new == old:
        return f"{word}: {format_bytes(new)}, as before"
    share = f", {(new - old) / old:+.1%}" if old else ""
    sign = "+" if new > old else "-"
    return f"{word}: {format_bytes(old)} -> {format_bytes(new)} ({sign}{format_bytes(abs(new - old))}{share})"
