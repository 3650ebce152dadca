"""A run's summary in plain words, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from memguard.records.findings import Finding, Severity
from memguard.records.phases import PhaseTotals
from memguard.records.stats import Stage
from memguard.records.summary import Peak, StageSummary, Summary
from memguard.text.places import place_text
from memguard.text.terminal import coloured, fold, one_line
from memguard.text.units import format_bytes

_NOTES = 12
_SHORT_RUN, _LARGE_SHARE = 1000, 0.01
"""Batches and share of the time: of a shorter run that paid more, the cost says why."""


@final
@dataclass(frozen=True)
class _Line:
    """One line of the summary, before it is wrapped: what stands in the margin, and the text beside it."""

    text: str
    margin: str = ""
    severity: Severity | None = None

    def folded(self, width: int | None, colours: bool) -> list[str]:
        """As lines of a terminal; without a width as one line."""
        lines = fold(one_line(self.text), width, first=self.margin)
        if self.severity is not None:
            margin = coloured(self.margin, self.severity.value, colours)
            lines[0] = margin + lines[0].removeprefix(self.margin)
        return lines


def render(summary: Summary, *, ranks: int = 1, width: int | None = None, colours: bool = False) -> str:
    """The summary as text: the verdict, why and what to do next, then peak, stages, findings, cost, recording.

    Args:
        summary: Of one process, or of several ranks merged.
        ranks: How many ranks it is of.
        width: Columns of the terminal, at which sentences are wrapped; None writes each as one line.
        colours: Whether severities have colours.
    """
    lines = [_Line(headline(summary, ranks))]
    lines += [_Line(text, margin=f"{word}:".ljust(7)) for word, text in why_texts(summary, ranks)]
    texts = peak_texts(summary)
    for further in summary.devices if ranks == 1 else ():
        texts += [f"On {further.device}: {line[0].lower()}{line[1:]}" for line in peak_texts(further)]
    lines += map(_Line, texts)
    lines += [*_table(stage_rows(summary), width), *_table(phase_rows(summary), width)]
    lines += map(_Line, [*_allocator_lines(summary), *_kept_lines(summary)])
    lines += _finding_lines(summary, ranks)
    texts = ["", cost_text(summary, ranks)]
    texts += [f"Note: {note}" for note in _few(summary.notes)]
    if summary.recording is not None:
        where = Path(summary.recording).parent if ranks > 1 else summary.recording
        there = f"{summary.uploaded} (on this machine: {where})" if summary.uploaded else where
        texts.append(f"Recording{'s' * (ranks > 1)}: {there}")
    lines += map(_Line, texts)
    return "\n".join(part for line in lines for part in line.folded(width, colours))


def cost_text(summary: Summary, ranks: int = 1) -> str:
    """What memguard cost: its start-up, and apart from it what it takes of a batch and of the run's time."""
    if summary.overhead_seconds is None or summary.overhead_share is None:
        return "Cost of memguard: unknown, because a run records it at its end."
    start = f"start-up {_seconds(summary.start_up_seconds)}, then " if summary.start_up_seconds is not None else ""
    batches = max(summary.batches, 1) / max(ranks, 1)
    each = f"{_rounded(1000 * summary.overhead_seconds / batches)} ms a batch"
    share = f"{summary.overhead_share:.2%} of the run's time" + (" on the rank with most" if ranks > 1 else "")
    simulated = " The virtual device's own time is not counted." if summary.device.startswith("virtual") else ""
    is_short = batches < _SHORT_RUN and summary.overhead_share >= _LARGE_SHARE
    early = " The first 64 batches are checked most closely; in a longer run the share falls." if is_short else ""
    return f"Cost of memguard: {start}{each}, {share}.{simulated}{early}"


def _seconds(number: float) -> str:
    return f"{_rounded(number)} s" if number >= 0.1 else f"{_rounded(1000 * number)} ms"


def _rounded(number: float) -> str:
    """Two digits that say something, and never an exponent."""
    return f"{number:.0f}" if number >= 10 else "less than 0.001" if 0 < number < 0.001 else f"{number:.2g}"


def describe_peak(peak: Peak) -> str:
    """Where a peak stood, like ``"train batch 120 (epoch 2, input x [64, 784])"``."""
    inside = [f"epoch {peak.epoch}"] if peak.epoch is not None else []
    if peak.shapes:
        inside.append("input " + shapes_text(peak.shapes))
    number = peak.index if peak.index is not None else peak.batch
    return f"{peak.stage.value} batch {number}" + (f" ({', '.join(inside)})" if inside else "")


def headline(summary: Summary, ranks: int = 1) -> str:
    """The verdict in a line."""
    name = f" ({summary.device_name})" if summary.device_name else ""
    rank = f", rank {summary.rank} of {summary.world_size}" if summary.world_size > 1 else ""
    where = f"{summary.device}{name}{rank}" if ranks == 1 else f"{ranks} ranks{name}"
    if any(finding.severity is not Severity.INFO for finding in summary.findings):
        verdict = " and ".join(_counts(summary))
        worst = max(finding.severity for finding in summary.findings)
        of = {finding.rank for finding in summary.findings if finding.severity is worst}
        if ranks == 1 and summary.rank not in of:
            verdict += f", the worst on {ranks_text(sorted(of))}"
    elif not summary.batches:
        verdict = "nothing was recorded"
    else:
        verdict = "nothing to worry about" if summary.is_sound else "no warnings"
    if summary.is_running:
        verdict += " so far"
    elif summary.ended is None:
        verdict += f"; {'the run' if ranks == 1 else 'a rank'} ended without a word (killed?) or still runs"
    elif summary.ended != "finished":
        verdict += f"; it ended with {summary.ended}"
    count = summary.counted_batches
    batches = f"{count} batch{'es' * (count != 1)}" + (" in all" if ranks > 1 else "")
    batches += f" in {summary.starts} starts" if summary.starts > 1 else ""
    return f"memguard on {where}: {batches}, {verdict}."


def _counts(summary: Summary) -> Iterator[str]:
    for severity, word in ((Severity.CRITICAL, "critical finding"), (Severity.WARNING, "warning")):
        count = len({finding.cause for finding in summary.findings if finding.severity is severity})
        if count:
            yield f"{count} {word}{'s' * (count > 1)}"


def why_texts(summary: Summary, ranks: int = 1) -> Iterator[tuple[str, str]]:
    """Why the verdict is as it is, and what to do next, of the worst that the run has; nothing for a sound one."""
    if summary.oom:
        rank = summary.oom.get("rank", "?")
        on = f" on rank {rank}" if ranks > 1 or rank not in (summary.rank, "?") else ""
        batch, cause = summary.oom.get("batch", "?"), summary.oom.get("cause", "see the report")
        yield "Why", f"Out of memory{on} at batch {batch}: {cause}"
        first = next(iter(summary.oom.get("advice") or ()), None)
        if isinstance(first, dict) and isinstance(first.get("text"), str):
            yield "Next", first["text"]
        return
    warned = [finding for finding in sorted_findings(summary) if finding.severity is not Severity.INFO]
    worst = next((finding for finding in warned if finding.line), next(iter(warned), None))  # a line says why
    if worst is None:
        return
    place = place_text(worst.file, worst.line) if worst.file and worst.line else ""
    inside = [f"`{worst.holder}`"] if worst.holder else []
    inside += [format_bytes(worst.bytes)] if worst.bytes else []
    where = f" at {place}" if place else ""
    what = f" ({', '.join(inside)})" if inside else ""
    yield "Why", f"{worst.code} {worst.name}{where}{what}."
    if worst.advice:
        yield "Next", worst.advice


def peak_texts(summary: Summary) -> list[str]:
    """The highest memory, where it was, and what the allocator reserved."""
    peak, total = summary.peak, summary.device_total_bytes
    if peak.allocated_bytes is not None:
        word = "Peak" if summary.measures_peaks else "Highest seen (this device reports no peaks)"
        share = f" of {format_bytes(total)} ({peak.allocated_bytes / total:.0%})" if total else ""
        lines = [f"{word}: {format_bytes(peak.allocated_bytes)} allocated{share}, at {describe_peak(peak)}."]
        if summary.reserved_peak_bytes is not None:
            left = summary.headroom_bytes
            room = f"; headroom {format_bytes(left)}" if left is not None else ""
            lines.append(f"Reserved by PyTorch at most {format_bytes(summary.reserved_peak_bytes)}{room}.")
        return lines
    if peak.host_rss_bytes is not None:
        share = f" of {format_bytes(total)} ({peak.host_rss_bytes / total:.0%})" if total else ""
        highest = format_bytes(peak.host_rss_bytes)
        return [f"Highest RAM of this process at a batch's end: {highest}{share}, at {describe_peak(peak)}."]
    return ["No memory could be measured on this device."] if summary.batches else []


def stage_rows(summary: Summary) -> list[tuple[str, ...]]:
    """The table of stages, its heads first; empty without any."""
    if not summary.stages:
        return []
    heads = ("stage", "batches", "ms/batch", "peak allocated", "peak reserved", "RAM")
    return [heads, *(_stage_row(stage, entry) for stage, entry in summary.in_order.items())]


def phase_rows(summary: Summary) -> list[tuple[str, ...]]:
    """The table of phases, its heads first; empty without any."""
    if not summary.phases:
        return []
    rows: list[tuple[str, ...]] = [("phase", "times", "ms each", "peak allocated", "peak reserved", "allocated after")]
    for totals in summary.phases.values():
        failed = f", {totals.failed} failed" if totals.failed else ""
        rows.append(
            (
                totals.name,
                f"{totals.times}{failed}",
                f"{1000 * totals.seconds / totals.times:.1f}" if totals.times else "-",
                _or_dash(totals.allocated_peak_bytes),
                _or_dash(totals.reserved_peak_bytes),
                _or_dash(totals.floor_bytes),
            )
        )
    if any(totals.floor_bytes is None for totals in summary.phases.values()):  # a host has no allocator that counts
        rows = [(*row, ram) for row, ram in zip(rows, ["RAM", *map(_ram, summary.phases.values())], strict=True)]
    return rows


def _table(rows: Sequence[tuple[str, ...]], width: int | None) -> Iterator[_Line]:
    """A table; on a terminal that is too narrow for it a paragraph for each row."""
    if not rows:
        return
    yield _Line("")
    lines = columns(rows)
    if width is None or max(map(len, lines)) <= width:
        yield from (_Line("", margin=one_line(line)) for line in lines)
        return
    heads = rows[0]
    for row in rows[1:]:
        cells = ", ".join(f"{head} {cell}" for head, cell in zip(heads[1:], row[1:], strict=True))
        yield _Line(cells, margin=f"{one_line(row[0])}: ")


def _ram(totals: PhaseTotals) -> str:
    return _or_dash(totals.host_rss_peak_bytes)


def columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Rows of equally many cells as lines, each column as wide as it must be."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _stage_row(stage: Stage, entry: StageSummary) -> tuple[str, ...]:
    return (
        stage.value,
        str(entry.batches),
        f"{1000 * entry.seconds / entry.batches:.1f}" if entry.batches else "-",
        _or_dash(entry.peak.allocated_bytes),
        _or_dash(entry.peak.reserved_bytes),
        _or_dash(entry.host_rss_peak_bytes),
    )


def _allocator_lines(summary: Summary) -> list[str]:
    lines = []
    if summary.num_alloc_retries:
        times = f"{summary.num_alloc_retries} time{'s' * (summary.num_alloc_retries > 1)}"
        lines.append(
            f"The allocator had to flush its cache {times} to find memory: "
            "the run is at the edge of this device, and slower for it."
        )
    if summary.num_ooms:
        lines.append(f"The allocator reported out of memory {summary.num_ooms} time{'s' * (summary.num_ooms > 1)}.")
    return ["", *lines] if lines else []


def _kept_lines(summary: Summary) -> list[str]:
    """The curve in a sentence, whether or not its cause is known."""
    if summary.risen is None:
        return []
    stage, kept = summary.risen
    how = "rose" if kept.fell else "never fell and rose"
    return [
        "",
        f"What stays allocated after a batch {how} from {format_bytes(kept.from_bytes)} to "
        f"{format_bytes(kept.to_bytes)} in {stage.value}.",
    ]


def sorted_findings(summary: Summary) -> list[Finding]:
    """The findings, the most severe first."""
    return sorted(summary.findings, key=lambda f: (-list(Severity).index(f.severity), f.code))


def _finding_lines(summary: Summary, ranks: int) -> Iterator[_Line]:
    yield _Line("")
    if not summary.findings:
        yield _Line("Findings: none.")
        return
    yield _Line("Findings:")
    named = ranks > 1 or any(finding.rank != summary.rank for finding in summary.findings)
    causes: dict[object, list[Finding]] = {}
    for finding in sorted_findings(summary):
        causes.setdefault(finding.cause, []).append(finding)
    for finding, *others in causes.values():  # the same cause on several ranks is one message
        times = f" ({finding.count} times)" if finding.count > 1 and finding.code.startswith("MG0") else ""
        on = f" [{ranks_text([each.rank for each in (finding, *others)])}]" if named else ""
        text = f"{finding.code} {finding.name}{times}{on}: {finding.text}"
        yield _Line(text, margin=f"{finding.severity.value:10}", severity=finding.severity)
        if finding.advice:
            yield _Line(f"Fix: {finding.advice}", margin=" " * 10)


def ranks_text(ranks: Sequence[int]) -> str:
    """Like ``"rank 3"``, ``"ranks 1-3, 7"``."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = [f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs]
    more = f" and {sum(map(len, runs[8:]))} more" if len(runs) > 8 else ""
    return f"rank{'s' * (len(set(ranks)) > 1)} {', '.join(parts[:8])}{more}"


def _few(notes: list[str]) -> list[str]:
    """The first notes; of many ranks there may be hundreds."""
    return notes if len(notes) <= _NOTES else [*notes[: _NOTES - 1], f"and {len(notes) - _NOTES + 1} more notes"]


def shapes_text(shapes: Sequence[object]) -> str:
    """The first three of a batch's inputs, like ``"x [64, 784], y [64]"``."""
    return ", ".join(_shape(entry) for entry in shapes[:3])


def _shape(entry: object) -> str:
    if isinstance(entry, (list, tuple)) and len(entry) >= 2:
        return f"{entry[0]} {list(entry[1])}" if isinstance(entry[1], (list, tuple)) else f"{entry[0]} {entry[1]}"
    return str(entry)


def _or_dash(nbytes: int | None) -> str:
    return "-" if nbytes is None else format_bytes(nbytes)
