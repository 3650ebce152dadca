"""A forecast in words, for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memguard import places
from memguard.units import format_bytes

if TYPE_CHECKING:
    from memguard.forecast.result import Forecast, Line, TableRow

_MOST = 6


def forecast_text(forecast: Forecast) -> str:
    """Verdict first, then the peaks, what holds them, and what would help."""
    verdict = [*verdict_text(forecast), *near_edge_text(forecast), *batch_text(forecast)]
    lines = [*verdict, "", *_peaks(forecast), "", *_shares(forecast)]
    if forecast.suggestions:
        lines += ["", f"{help_title(forecast)}:"]
        for suggestion in forecast.suggestions:
            lines.append(
                f"  {suggestion.name}: {format_bytes(suggestion.reserved_peak_bytes)} reserved, {suggestion.verdict}"
                f" ({suggestion.change}; cost: {suggestion.cost})"
            )
    if forecast.fits is False and forecast.batch is None:
        lines += ["", "Tell the batch size (batch=32, --batch 32) to learn the largest that fits."]
    if forecast.table:
        lines += ["", *_table(forecast)]
    if forecast.notes:
        lines += ["", "Assumed:", *(f"  {note}" for note in forecast.notes)]
    lines += ["", f"From {forecast.operators} operators in {forecast.seconds:.1f} s: {forecast.method}."]
    return "\n".join(lines)


def verdict_text(forecast: Forecast) -> list[str]:
    """Whether it fits, and by how much."""
    if forecast.verdict is None:
        return ['No GPU was named, so there is no verdict; name one (device="24GiB", --device 24GiB).']
    usable = (forecast.device_total_bytes or 0) - forecast.context_bytes - forecast.reserved_by_others_bytes
    lines = [
        f"The step {forecast.verdict} on {forecast.device}: it reserves "
        f"{format_bytes(forecast.reserved_peak_bytes)} of {format_bytes(usable)} that PyTorch can have."
    ]
    if forecast.out_of_memory:
        lines.append(f"  {forecast.out_of_memory.split(' GPU ')[0].rstrip('.')} when memory ran out.")
    return lines


def near_edge_text(forecast: Forecast) -> list[str]:
    """Said where the verdict hangs on what is not known."""
    if forecast.verdict is None or forecast.device_total_bytes is None:
        return []
    usable = forecast.device_total_bytes - forecast.context_bytes - forecast.reserved_by_others_bytes
    low, high = forecast.reserved_peak_bytes_range
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
    return lines


def _shares(forecast: Forecast) -> list[str]:
    lines = ["At the peak, by owner:"]
    lines += [f"  {share.name:<17}{format_bytes(share.bytes):>12}" for share in forecast.owners]
    lines.append("by module:")
    lines += [f"  {format_bytes(share.bytes):>12}  {share.name}" for share in forecast.modules[:_MOST]]
    lines.append("by line:")
    lines += [f"  {format_bytes(line.bytes):>12}  {place_text(line)}" for line in forecast.lines[:_MOST]]
    return lines


def _table(forecast: Forecast) -> list[str]:
    sized = any(row.batch is not None for row in forecast.table)
    lines = [f"Reserved by {'batch size' if sized else 'card'}:"]
    for row in forecast.table:
        batch = f"{row.batch:>6}  " if row.batch is not None else ""
        size = format_bytes(row.reserved_peak_bytes) if row.reserved_peak_bytes is not None else "-"
        lines.append(f"  {batch}{size:>10}  {row.card}: {row_verdict(row)}")
    return lines


def row_verdict(row: TableRow) -> str:
    """What a row of the table comes to."""
    return row.verdict or f"cannot be forecast: {row.reason}"


def place_text(line: Line) -> str:
    """File, line and source."""
    if line.file is None:
        return "set up before the steps"
    text = places.place_text(line.file, line.line)
    return f"{text}  {line.source}" if line.source else text


def _range(bounds: tuple[int, int]) -> str:
    return f"{format_bytes(bounds[0])} and {format_bytes(bounds[1])}"
