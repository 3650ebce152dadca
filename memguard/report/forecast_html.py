"""A forecast as one HTML file: the text, and the memory of the step by owner as a drawing."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING

from memguard.report.forecast_plot import COLOURS, bands
from memguard.report.forecast_text import forecast_text
from memguard.units import format_bytes

if TYPE_CHECKING:
    from memguard.forecast.result import Forecast

_WIDTH, _HEIGHT = 900, 320


def forecast_html(forecast: Forecast) -> str:
    """The page; it needs nothing beside itself."""
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>memguard forecast</title><style>"
        "body{font:14px system-ui,sans-serif;max-width:960px;margin:2em auto;padding:0 1em}"
        "pre{background:#f5f5f5;padding:1em;overflow:auto}.key{display:inline-block;margin-right:1em}"
        ".key i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}</style></head><body>"
        f"<h1>Forecast: {html.escape(forecast.verdict or 'no device')}</h1>{forecast_svg(forecast)}"
        f"<pre>{html.escape(forecast_text(forecast))}</pre></body></html>\n"
    )


def forecast_svg(forecast: Forecast) -> str:
    """Allocated memory over the step that holds the peak, stacked by owner, with its key."""
    stacked = bands(forecast)
    if not stacked:
        return ""
    top = max(max(upper) for _, _, upper in stacked)
    count = len(stacked[0][1])
    shapes = []
    for owner, lower, upper in stacked:
        over = [(index, value) for index, value in enumerate(upper)]
        under = [(index, value) for index, value in enumerate(lower)][::-1]
        points = " ".join(
            f"{index * _WIDTH / max(count - 1, 1):.1f},{_HEIGHT - value * _HEIGHT / top:.1f}"
            for index, value in over + under
        )
        shapes.append(f"<polygon points='{points}' fill='{COLOURS[owner]}'><title>{owner}</title></polygon>")
    keys = "".join(
        f"<span class='key'><i style='background:{COLOURS[owner]}'></i>{owner}</span>" for owner, _, _ in stacked
    )
    return (
        f"<p>Allocated memory during step {forecast.peak_step + 1}, up to {format_bytes(top)}</p>"
        f"<svg viewBox='0 0 {_WIDTH} {_HEIGHT}' width='100%' role='img' aria-label='memory by owner'>"
        f"{''.join(shapes)}</svg><p>{keys}</p>"
    )


def write_forecast_html(forecast: Forecast, path: Path) -> None:
    """Write the page to `path`."""
    path.write_text(forecast_html(forecast), encoding="utf-8")
