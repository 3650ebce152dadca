"""A forecast in words, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memguard.text import places
from memguard.text.units import format_bytes

if TYPE_CHECKING:
    from memguard.forecast.result import Forecast, Line, TableRow

_MOST = 6


def forecast_text(forecast: Forecast) -> str:
    """Verdict first, then the peaks, what holds them, and what would help."""
    verdict = [*verdict_text(forecast), *near_edge_text(forecast), *batch_text(forecast)]
    lines = [
        *verdict,
        *measured_text(forecast),
        *_layouts(forecast),
        *_ranks(forecast),
        "",
        *_peaks(forecast),
        "",
        *_shares(forecast),
    ]
    if forecast.suggestions:
        lines += ["", f"{help_title(forecast)}:"]
        for suggestion in forecast.suggestions:
            lines.append(
                f"  {suggestion.name}: {format_bytes(suggestion.reserved_peak_bytes)} reserved, {suggestion.verdict}"
                f" ({suggestion.change}; cost: {suggestion.cost})"
            )
    elif forecast.fits is False and forecast.ranks:
        lines += [
            "",
            "Ask what would make it fit (suggest=True, --suggest): each change is traced for the highest rank.",
        ]
    if forecast.fits is False and forecast.batch is None:
        lines += ["", "Give the batch size (batch=32, --batch 32) to learn the largest that fits."]
    if forecast.table:
        lines += ["", *_table(forecast)]
    if forecast.notes:
        lines += ["", "Assumed:", *(f"  {note}" for note in forecast.notes)]
    operators = f"From {forecast.operators} operators in" if forecast.operators else "In"
    lines += ["", f"{operators} {forecast.seconds:.1f} s: {forecast.method}."]
    return "\n".join(lines)


def verdict_text(forecast: Forecast) -> list[str]:
    """Whether it fits, and by how much."""
    if forecast.verdict is None:
        return ['No GPU was named, so there is no verdict; name one (device="24GiB", --device 24GiB).']
    who = f"rank {forecast.ranks[0].rank}" if len(forecast.ranks) > 1 else "each rank" if forecast.ranks else "it"
    peak, usable = format_bytes(forecast.reserved_peak_bytes), format_bytes(forecast.usable_bytes or 0)
    amounts = f"reserves {peak} of {usable} that PyTorch can have"
    if forecast.out_of_memory:
        amounts = f"needs {peak}, and PyTorch can have {usable}"
    lines = [f"The step {forecast.verdict} on {forecast.device}: {who} {amounts}."]
    if forecast.out_of_memory:
        lines.append(f"  {forecast.out_of_memory.split(' GPU ')[0].rstrip('.')} when memory ran out.")
    return lines


def near_edge_text(forecast: Forecast) -> list[str]:
    """Said where the verdict hangs on what is not known."""
    if forecast.verdict is None or forecast.device_total_bytes is None:
        return []
    usable = forecast.usable_bytes or 0
    low, high = forecast.reserved_peak_bytes_range
    least, typical, most = forecast.communication_bytes
    low, high = low - (typical - least), high + (most - typical)
    if forecast.verdict_without_workspaces not in (None, forecast.verdict):
        return [
            f"The verdict hangs on cuDNN's workspaces: without them the step {forecast.verdict_without_workspaces}."
        ]
    if forecast.verdict == "fits" and high > usable:
        return [f"It is close: at the upper end of the range it would need {format_bytes(high - usable)} more."]
    if forecast.verdict == "does not fit" and low <= usable:
        return [f"It is close: at the lower end of the range it would fit, with {format_bytes(usable - low)} left."]
    return []


def batch_text(forecast: Forecast) -> list[str]:
    """The largest batch, if it was asked for."""
    if forecast.largest_batch is None:
        return []
    if forecast.largest_batch == 0:
        return ["No batch size runs: one sample is too much already."]
    line = f"Largest batch that runs: {forecast.largest_batch}"
    if forecast.largest_batch_without_retries != forecast.largest_batch:
        line += f" (without retries: {forecast.largest_batch_without_retries or 'none'})"
    return [f"{line}; to be safe, with 2 % of the GPU left free: {forecast.largest_batch_with_margin or 'none'}."]


def help_title(forecast: Forecast) -> str:
    """What stands above the suggestions: whether one of them is enough."""
    enough = forecast.fits or any(suggestion.verdict == "fits" for suggestion in forecast.suggestions)
    return "What would help, cheapest first" + ("" if enough else "; none of it alone makes the step fit")


def measured_text(forecast: Forecast) -> list[str]:
    """What real steps took, how the replay compares, and where all other figures come from."""
    lines = []
    for one in forecast.measured:
        count = len(one.steps)
        steps = f"step {count + 1}" if one.out_of_memory else f"{count} step{'' if count == 1 else 's'}"
        batch = "" if one.batch is None else f" at batch {one.batch}"
        peaks = f"{format_bytes(one.allocated_peak_bytes)} allocated, {format_bytes(one.reserved_peak_bytes)} reserved"
        if one.replayed_reserved_peak_bytes is None or one.replayed_allocated_peak_bytes is None:
            told = f"out of memory, with {peaks}"
        else:
            pairs = (
                ("allocated", one.allocated_peak_bytes, one.replayed_allocated_peak_bytes),
                ("reserved", one.reserved_peak_bytes, one.replayed_reserved_peak_bytes),
            )
            off = [f"{(replayed - real) / real:+.1%} {name}" for name, real, replayed in pairs if replayed != real]
            told = f"{peaks}; replayed: {', '.join(off) or 'the same'}"
        lines.append(f"Measured on {one.device}, {steps}{batch}: {told}.")
    if lines and forecast.source == "replayed":
        lines.append("The figures of the step are those of the replay: what it allocated, on the GPU named here.")
    scaled = [f"batch {row.batch}" for row in forecast.table if row.source == "scaled"]
    scaled = ["the step itself"] * (forecast.source == "scaled") + list(dict.fromkeys(scaled))
    scaled += ["the largest batch"] * (forecast.largest_batch is not None)
    if lines and scaled:
        lines.append(
            f"Scaled, each allocation on a line through the two batch sizes that were measured: {', '.join(scaled)}."
        )
    return lines


def _layouts(forecast: Forecast) -> list[str]:
    """What the highest rank needs in each layout, the lowest first."""
    if not forecast.layouts:
        return []
    names = [", ".join(f"{name} {size}" for name, size in one.mesh.items()) for one in forecast.layouts]
    width = max(map(len, names))
    lines = ["", "By layout, the lowest first (all below is of that one):"]
    for name, one in zip(names, forecast.layouts, strict=True):
        if one.reserved_peak_bytes is None or one.allocated_peak_bytes is None:
            lines.append(f"  {name.ljust(width)}  cannot be forecast: {one.reason}")
            continue
        verdict = f", {one.verdict}" if one.verdict else ""
        highest = f"  (highest: {one.role})" if one.role else ""
        lines.append(
            f"  {name.ljust(width)}  {format_bytes(one.allocated_peak_bytes):>12} allocated, "
            f"{format_bytes(one.reserved_peak_bytes):>12} reserved{verdict}{highest}"
        )
    return lines


def _ranks(forecast: Forecast) -> list[str]:
    """What each kind of rank needs, the highest first, and why that is the highest."""
    if not forecast.ranks:
        return []
    lines = [""]
    if len(forecast.ranks) == 1:
        lines.append(f"All {forecast.ranks[0].count} ranks are alike.")
    else:
        width = max(len(one.role) for one in forecast.ranks)
        lines.append("By rank, the highest first:")
        for one in forecast.ranks:
            many = f"rank {one.rank}" if one.count == 1 else f"{one.count} ranks, traced: {one.rank}"
            verdict = f", {one.verdict}" if one.verdict else ""
            lines.append(
                f"  {one.role.ljust(width)}  {format_bytes(one.allocated_peak_bytes):>12} allocated, "
                f"{format_bytes(one.reserved_peak_bytes):>12} reserved{verdict}  ({many})"
            )
        lines += _why_highest(forecast)
    low, typical, high = forecast.communication_bytes
    if high:
        lines.append(
            f"NCCL takes {format_bytes(low)} to {format_bytes(high)} beside PyTorch's allocator, by links and "
            f"channels; {format_bytes(typical)} are taken off."
        )
    return lines


def _why_highest(forecast: Forecast) -> list[str]:
    """What the highest rank holds more than the lowest does."""
    ends = forecast.ranks[0], forecast.ranks[-1]
    highest, lowest = ({share.name: share.bytes for share in one.owners} for one in ends)
    owner = max(highest, key=lambda name: highest[name] - lowest.get(name, 0), default=None)
    if owner is None or format_bytes(highest[owner]) == format_bytes(lowest.get(owner, 0)):
        return []  # a few bytes, or blocks that are placed in another way
    where = forecast.ranks[0].role or f"rank {forecast.ranks[0].rank}"
    return [
        f"{where} is the highest: its {owner} take {format_bytes(highest[owner])}, those of "
        f"{forecast.ranks[-1].role or 'the lowest'} {format_bytes(lowest.get(owner, 0))}."
    ]


def _peaks(forecast: Forecast) -> list[str]:
    first, steady = forecast.first_step, forecast.steady_step
    allocated, reserved = forecast.allocated_peak_bytes, forecast.reserved_peak_bytes
    lines = [
        f"Peak allocated {format_bytes(allocated)} (between {_range(forecast.allocated_peak_bytes_range)})",
        f"Peak reserved  {format_bytes(reserved)} (between {_range(forecast.reserved_peak_bytes_range)})",
        *(f"  {source}" for source in forecast.range_sources),
        f"First step {format_bytes(first.allocated_peak_bytes)}, later steps "
        f"{format_bytes(steady.allocated_peak_bytes)} (between steps {format_bytes(steady.allocated_end_bytes)}).",
    ]
    if forecast.peak_line is not None:
        place = f"step {forecast.peak_step + 1}, {forecast.peak_phase}, {place_text(forecast.peak_line)}"
        lines.append(f"The peak is reached in {place}.")
    if forecast.peak_workspace_bytes:
        where = f" of {forecast.peak_line.module}" if forecast.peak_line and forecast.peak_line.module else ""
        size = format_bytes(forecast.peak_workspace_bytes)
        lines.append(f"The allocation at the peak is cuDNN's workspace{where}, {size}: the GPU may choose another.")
    if forecast.refused_workspaces_bytes:
        count, largest = len(forecast.refused_workspaces_bytes), max(forecast.refused_workspaces_bytes)
        lines.append(
            f"{count} workspace{'s' if count > 1 else ''} of convolutions, up to {format_bytes(largest)}, did not fit; "
            "PyTorch then runs cuDNN's next plan, which is slower."
        )
    return lines


def _shares(forecast: Forecast) -> list[str]:
    lines = ["At the peak, by owner:"]
    lines += [f"  {share.name:<22}{format_bytes(share.bytes):>12}" for share in forecast.owners]
    lines.append("by module:")
    lines += [f"  {format_bytes(share.bytes):>12}  {share.name}" for share in forecast.modules[:_MOST]]
    lines.append("by line:")
    lines += [f"  {format_bytes(line.bytes):>12}  {place_text(line)}" for line in forecast.lines[:_MOST]]
    return lines


def _table(forecast: Forecast) -> list[str]:
    """Cards down, batch sizes across; what is reserved, and a mark where it does not fit."""
    heads, rows = matrix(forecast)
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    lines = [f"Reserved by card{' and batch size' if len(heads) > 2 else ''} (~ only with retries, x does not fit):"]
    for row in (heads, *rows):
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(["", row[0].ljust(widths[0]), *cells]))
    return lines + [f"  - cannot be forecast: {reason}" for reason in unforeseen(forecast)]


def unforeseen(forecast: Forecast) -> list[str]:
    """Why parts of the table could not be forecast, each reason once."""
    return list(dict.fromkeys(row.reason for row in forecast.table if row.reason))


_MARKS = {"fits": "", "fits only with retries": " ~", "does not fit": " x"}


def matrix(forecast: Forecast) -> tuple[list[str], list[list[str]]]:
    """The table as a head and rows: one for each card, one column for each batch size, then the largest batch."""
    batches = list(dict.fromkeys(row.batch for row in forecast.table))
    cells = {(row.card, row.batch): row for row in forecast.table}
    largest = {one.card: one.batch for one in forecast.largest_batches}
    heads = ["card", *("reserved" if batch is None else f"batch {batch}" for batch in batches)]
    rows = [
        [card, *(_cell(cells[card, batch]) for batch in batches)]
        for card in dict.fromkeys(r.card for r in forecast.table)
    ]
    if largest:
        heads.append("largest batch")
        for row in rows:
            found = largest.get(row[0])
            row.append("-" if found is None else str(found or "none"))
    return heads, rows


def _cell(row: TableRow) -> str:
    if row.reserved_peak_bytes is None or row.verdict is None:
        return "-"
    return format_bytes(row.reserved_peak_bytes) + _MARKS[row.verdict]


def place_text(line: Line) -> str:
    """File, line and source."""
    if line.file is None:
        return f"PyTorch's own, {line.phase}" if line.phase not in ("", "setup") else "set up before the steps"
    text = places.place_text(line.file, line.line)
    return f"{text}  {line.source}" if line.source else text


def _range(bounds: tuple[int, int]) -> str:
    return f"{format_bytes(bounds[0])} and {format_bytes(bounds[1])}"
