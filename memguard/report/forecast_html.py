"""A forecast as one HTML file that needs nothing beside itself: verdict, drawing, owners, lines, what would help."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memguard.report.forecast_svg import COLOURS, forecast_svg
from memguard.report.forecast_text import (
    batch_text,
    help_title,
    matrix,
    measured_text,
    near_edge_text,
    place_text,
    unforeseen,
    verdict_text,
)
from memguard.report.page import render_template
from memguard.text.units import format_bytes

if TYPE_CHECKING:
    from memguard.forecast.result import Forecast

_MOST = 8
_UNUSED_SHARE = 0.001
"""Below it the owners' figures and the allocated peak, rounded as they are shown, agree."""
_MARKS: Final = {"~": "fits only with retries", "x": "does not fit"}
"""Behind the sizes of the table of cards."""


def forecast_html(forecast: Forecast) -> str:
    """The page."""
    from markupsafe import Markup

    title = f"The step {forecast.verdict} on {forecast.device}" if forecast.verdict else "Forecast of a training step"
    verdict = verdict_text(forecast)[0].removeprefix(f"{title}: ")
    heads, rows = matrix(forecast) if forecast.table else ((), [])
    unused = forecast.allocated_peak_bytes - sum(share.bytes for share in forecast.owners)
    conf = f", with PYTORCH_CUDA_ALLOC_CONF={forecast.alloc_conf}" if forecast.alloc_conf else ""
    return render_template(
        "forecast",
        title=title,
        colours={owner: (colour, colour) for owner, colour in COLOURS.items()},
        forecast=forecast,
        said=[
            verdict[0].upper() + verdict[1:],
            *near_edge_text(forecast),
            *batch_text(forecast),
            *measured_text(forecast),
        ],
        figures=[*_figures(forecast)],
        drawing=Markup(forecast_svg(forecast)),
        drawn=[owner for owner in COLOURS if any(point.owners.get(owner) for point in forecast.plot)],
        place=place_text(forecast.peak_line) if forecast.peak_line is not None else "",
        largest=max((share.bytes for share in forecast.owners), default=1),
        unused=unused if unused > _UNUSED_SHARE * forecast.allocated_peak_bytes else 0,
        help_title=help_title(forecast) if forecast.suggestions else "",
        heads=heads,
        numbers=heads[1:],
        cards=[(row[0], *map(_judged, row[1:])) for row in rows],
        unforeseen=unforeseen(forecast) if forecast.table else [],
        lines=[(_code(place_text(line)), format_bytes(line.bytes)) for line in forecast.lines[:_MOST]],
        modules=[(_code(share.name), format_bytes(share.bytes)) for share in forecast.modules[:_MOST]],
        how=(f"{forecast.operators:,} operators in " if forecast.operators else "")
        + f"{forecast.seconds:.1f} s: {forecast.method}, as torch "
        f"{forecast.torch_version} runs it{conf}.",
    )


def framed(forecast: Forecast) -> str:
    """The page in a frame, for a notebook: its style stays its own."""
    from markupsafe import escape

    return f'<iframe srcdoc="{escape(forecast_html(forecast))}" width="100%" height="640" frameborder="0"></iframe>'


def write_forecast_html(forecast: Forecast, path: Path) -> None:
    """Write the page to `path`."""
    path.write_text(forecast_html(forecast), encoding="utf-8")


def _figures(forecast: Forecast) -> Iterator[tuple[str, int, str]]:
    """The figures of the page: a name, bytes, and a remark."""
    yield "peak allocated", forecast.allocated_peak_bytes, _between(forecast.allocated_peak_bytes_range)
    yield "peak reserved", forecast.reserved_peak_bytes, _between(forecast.reserved_peak_bytes_range)
    first = f"first step's peak {format_bytes(forecast.first_step.allocated_peak_bytes)}"
    yield "between steps", forecast.steady_step.allocated_end_bytes, first
    if forecast.usable_bytes is not None:
        taken = format_bytes(forecast.context_bytes)
        note = f"of {format_bytes(forecast.device_total_bytes or 0)}; {taken} for CUDA itself"
        yield "for PyTorch", forecast.usable_bytes, note if forecast.context_bytes else "all of it"


def _between(bounds: tuple[int, int]) -> str:
    return f"between {format_bytes(bounds[0])} and {format_bytes(bounds[1])}"


def _judged(cell: str) -> str:
    """A size of the table of cards in the colour of its verdict."""
    from markupsafe import Markup

    size, _, mark = cell.rpartition(" ")
    if mark not in _MARKS:
        return cell
    tone = "warning" if mark == "~" else "critical"
    return Markup('<span class="{}-text" title="{}">{}</span>').format(tone, _MARKS[mark], size)


def _code(text: str) -> str:
    from markupsafe import Markup

    return Markup("<code>{}</code>").format(text)
