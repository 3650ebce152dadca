"""Two runs beside each other: what changed in peaks, phases, owners, findings and settings, the difference first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from memguard.records.findings import Finding
from memguard.records.summary import Summary, peak_height
from memguard.text.units import format_bytes

_LEAST = 0.01
"""Of the larger peak: owners and phases that differ by less are left out of the lines."""


class Difference(NamedTuple):
    """A figure of both runs, in bytes; None where one of them does not tell it."""

    what: str
    before_bytes: int | None
    after_bytes: int | None

    @property
    def bytes(self) -> int | None:
        """How much more the later run has; what only one of them has differs by all of it."""
        if self.before_bytes is None and self.after_bytes is None:
            return None
        return (self.after_bytes or 0) - (self.before_bytes or 0)

    def __str__(self) -> str:
        """Like ``+1.00 GiB (+25.0%) peak allocated: 4.00 GiB -> 5.00 GiB``."""
        old, new, more = self.before_bytes, self.after_bytes, self.bytes
        if old is None or new is None:
            known = format_bytes(new if new is not None else old)
            return f"{self.what}: {known}, only in the {'other' if new is None else 'later'} run"
        if not more:
            return f"{self.what}: {format_bytes(new)}, as before"
        share = f" ({more / old:+.1%})" if old else ""
        sign = "+" if more > 0 else "-"
        return f"{sign}{format_bytes(abs(more))}{share} {self.what}: {format_bytes(old)} -> {format_bytes(new)}"

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return {**self._asdict(), "difference_bytes": self.bytes}


def compare(before: Summary, after: Summary) -> dict[str, Any]:
    """How a run differs from an earlier one, as numbers and as lines of text."""
    peaks, others = list(_peaks(before, after)), sorted(_others(before, after), key=lambda each: -abs(each.bytes or 0))
    least = _LEAST * max(peaks[0].before_bytes or 0, peaks[0].after_bytes or 0)
    old, new = ({_cause(finding): finding for finding in summary.findings} for summary in (before, after))
    fresh = [finding for cause, finding in new.items() if cause not in old]
    gone = [finding for cause, finding in old.items() if cause not in new]
    both = [(old[cause], finding) for cause, finding in new.items() if cause in old]
    changed = [(was, now) for was, now in both if (was.severity, was.bytes) != (now.severity, now.bytes)]
    settings = [
        {"name": name, "before": before.settings.get(name), "after": after.settings.get(name)}
        for name in sorted({*before.settings, *after.settings} if before.settings and after.settings else ())
        if before.settings.get(name) != after.settings.get(name)
    ]
    lines = [str(each) for each in peaks] + [str(each) for each in others if abs(each.bytes or 0) > least]
    lines += [f"new: {finding.code} {finding.name}: {finding.message}" for finding in fresh]
    lines += [f"gone: {finding.code} {finding.name}: {finding.message}" for finding in gone]
    lines += [f"changed: {now.code} {now.name}: {_change(was, now)}" for was, now in changed if _change(was, now)]
    lines += [f"setting {each['name']}: {each['before']} -> {each['after']}" for each in settings]
    return {
        "peak_difference_bytes": peaks[0].bytes or 0,
        "differences": [each.to_json() for each in (*peaks, *others)],
        "new_findings": [finding.to_json() for finding in fresh],
        "gone_findings": [finding.to_json() for finding in gone],
        "changed_findings": [{"before": was.to_json(), "after": now.to_json()} for was, now in changed],
        "settings": settings,
        "lines": lines,
    }


def _peaks(before: Summary, after: Summary) -> Iterator[Difference]:
    column = 0 if after.peak.allocated_bytes is not None and before.peak.allocated_bytes is not None else 1
    word = "peak allocated" if column == 0 else "highest RAM"
    yield Difference(word, peak_height(before.peak)[column], peak_height(after.peak)[column])
    for stage in after.stages:
        if stage in before.stages:
            heights = [peak_height(summary.stages[stage].peak)[column] for summary in (before, after)]
            yield Difference(f"{word} in {stage.value}", *heights)
    if before.reserved_peak_bytes is not None and after.reserved_peak_bytes is not None:
        yield Difference("peak reserved", before.reserved_peak_bytes, after.reserved_peak_bytes)


def _others(before: Summary, after: Summary) -> Iterator[Difference]:
    """What phases peaked at, and owners had."""
    for name in {**before.phases, **after.phases} if before.phases and after.phases else ():
        peaks = [
            summary.phases[name].allocated_peak_bytes if name in summary.phases else None for summary in (before, after)
        ]
        yield Difference(f"peak in phase {name}", *peaks)
    for owner in {**before.owners, **after.owners} if before.owners and after.owners else ():
        yield Difference(f"{owner} at the peak", before.owners.get(owner, 0), after.owners.get(owner, 0))


def _cause(finding: Finding) -> tuple[str, str | None, int | None]:
    return finding.code, finding.holder, finding.line


def _change(was: Finding, now: Finding) -> str:
    parts = []
    if was.severity is not now.severity:
        parts.append(f"{was.severity.value} -> {now.severity.value}")
    if was.bytes is not None and now.bytes is not None and was.bytes != now.bytes:
        parts.append(f"{format_bytes(was.bytes)} -> {format_bytes(now.bytes)}")
    return ", ".join(parts)
