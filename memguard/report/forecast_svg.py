"""The drawing of a forecast: memory over the step that holds the peak, stacked by owner."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from itertools import groupby, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from memguard.report.page import css_class
from memguard.text.units import format_bytes

if TYPE_CHECKING:
    from memguard.forecast.result import Forecast

_WIDTH, _HEIGHT = 900, 340
_LEFT, _TOP, _BOTTOM = 68, 26, 40
_STEPS = (1, 2, 2.5, 5, 10)
_WANTED_TICKS = 5
_NARROWEST_PHASE = 0.04
_LETTER = 7
"""About the width of a letter."""
_IMAGE_STYLE = (
    "text{font:13px Helvetica,Arial,sans-serif;fill:#555}.title{font-size:18px;font-weight:600;fill:#222}"
    ".strong{font-weight:600;fill:#222}.grid{stroke:#ddd}.axis{stroke:#777;stroke-dasharray:2 3}.peak{fill:#222}"
    ".limit{stroke:#c02c2c;stroke-width:1.5;stroke-dasharray:7 4}.limit-text{fill:#c02c2c;font-weight:600}"
)


def forecast_svg(forecast: Forecast) -> str:
    """Bands, a scale, the phases of the step, the peak, and what the GPU has if it is near; empty without points.

    Colours and fonts are those of the page around it.
    """
    drawing = _drawing(forecast)
    box = f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="100%" role="img" aria-label="memory by owner"'
    return f"<svg {box}>{drawing}</svg>" if drawing else ""


def write_forecast_svg(forecast: Forecast, path: Path) -> None:
    """Write the drawing as an image that needs nothing beside itself: a title, the owners' colours, a white ground."""
    path.write_text(forecast_image(forecast), encoding="utf-8")


def forecast_image(forecast: Forecast) -> str:
    """The image of `write_forecast_svg`."""
    owners = [owner for owner, _, _ in bands(forecast)]
    keys, x = [], _LEFT
    for owner in owners:
        keys.append(f'<rect class="{css_class(owner)}" x="{x}" y="46" width="12" height="12"/>')
        keys.append(f'<text x="{x + 17}" y="56">{escape(owner)}</text>')
        x += 30 + _LETTER * len(owner)
    verdict = f": {forecast.verdict} on {forecast.device}" if forecast.verdict else ""
    title = f"Allocated memory in step {forecast.peak_step + 1}{verdict}"
    colours = "".join(f".{css_class(owner)}{{fill:{COLOURS[owner]}}}" for owner in owners)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH + 20} {_HEIGHT + 70}">'
        f"<style>{_IMAGE_STYLE}{colours}</style>"
        f'<rect width="100%" height="100%" fill="#fff"/><text class="title" x="{_LEFT}" y="28">{escape(title)}</text>'
        f'{"".join(keys)}<g transform="translate(0 66)">{_drawing(forecast)}</g></svg>\n'
    )


def _drawing(forecast: Forecast) -> str:
    """The elements of the drawing."""
    stacked = bands(forecast)
    if not stacked:
        return ""
    highest = max(max(upper) for _, _, upper in stacked)
    room = forecast.usable_bytes
    limit = room if room is not None and room < 1.6 * highest else None
    top = max(highest * 1.08, (limit or 0) * 1.04)
    count = len(stacked[0][1])
    across = (_WIDTH - _LEFT) / max(count - 1, 1)

    def x(index: float) -> float:
        return _LEFT + index * across

    def y(value: float) -> float:
        return _HEIGHT - _BOTTOM - value * (_HEIGHT - _TOP - _BOTTOM) / top

    parts = [_scale(top, y)]
    for owner, lower, upper in stacked:
        edge = [f"{x(i):.1f},{y(v):.1f}" for i, v in enumerate(upper)]
        edge += [f"{x(i):.1f},{y(v):.1f}" for i, v in reversed(list(enumerate(lower)))]
        parts.append(f'<polygon class="{css_class(owner)}" points="{" ".join(edge)}"><title>{owner}</title></polygon>')
    for name, begin, end in _phases(forecast):
        parts.append(f'<line class="axis" x1="{x(begin):.1f}" x2="{x(begin):.1f}" y1="{_TOP}" y2="{_HEIGHT - 22}"/>')
        middle = (x(begin) + x(end - 1)) / 2
        parts.append(f'<text x="{middle:.1f}" y="{_HEIGHT - 14}" text-anchor="middle">{escape(name)}</text>')
    totals = stacked[-1][2]
    at = totals.index(highest)
    anchor = "end" if at > count / 2 else "start"
    parts.append(f'<circle class="peak" cx="{x(at):.1f}" cy="{y(highest):.1f}" r="4"/>')
    shift = -8 if anchor == "end" else 8
    parts.append(
        f'<text class="strong" x="{x(at) + shift:.1f}" y="{y(highest) - 8:.1f}" text-anchor="{anchor}">'
        f"peak {format_bytes(highest)}</text>"
    )
    if limit is not None:
        parts.append(f'<line class="limit" x1="{_LEFT}" x2="{_WIDTH}" y1="{y(limit):.1f}" y2="{y(limit):.1f}"/>')
        parts.append(
            f'<text class="limit-text" x="{_LEFT + 6}" y="{y(limit) - 5:.1f}">{format_bytes(limit)} for PyTorch</text>'
        )
    return "".join(parts)


def _scale(top: float, y: Callable[[float], float]) -> str:
    unit = next(size for size in (2**30, 2**20, 2**10, 1) if top >= 1.5 * size or size == 1)
    rough = top / unit / _WANTED_TICKS
    power = 10.0 ** (len(str(int(rough))) - 1) if rough >= 1 else 0.1
    step = next(factor * power for factor in _STEPS if factor * power >= rough)
    lines, value = [], 0.0
    while value * unit <= top:
        level = y(value * unit)
        lines.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{level:.1f}" y2="{level:.1f}"/>')
        text = format_bytes(int(value * unit)) if value else "0"
        lines.append(f'<text x="{_LEFT - 8}" y="{level + 4:.1f}" text-anchor="end">{text}</text>')
        value += step
    return "".join(lines)


def _phases(forecast: Forecast) -> list[tuple[str, int, int]]:
    """Name, begin and end of each phase that is wide enough to be named; the others belong to those before."""
    found: list[tuple[str, int, int]] = []
    narrowest = _NARROWEST_PHASE * len(forecast.plot)
    for name, group in groupby(enumerate(forecast.plot), key=lambda pair: pair[1].phase):
        places = [index for index, _ in group]
        begin, end = places[0], places[-1] + 1
        if found and (found[-1][0] == name or end - begin < narrowest):
            found[-1] = (found[-1][0], found[-1][1], end)
        else:
            found.append((name, begin, end))
    return found


COLOURS = {
    "parameters": "#4269d0",
    "buffers": "#9498a0",
    "gradients": "#ff725c",
    "optimizer states": "#6cc5b0",
    "gathered parameters": "#9c6b4e",
    "communication buffers": "#3ca951",
    "activations": "#efb118",
    "inputs": "#97bbf5",
    "workspaces": "#a463f2",
    "temporaries": "#ff8ab7",
}
"""Colour of each owner, bottom band first."""


def bands(forecast: Forecast) -> list[tuple[str, list[int], list[int]]]:
    """Owner, lower edge and upper edge of each band, bottom first; empty without points."""
    if not forecast.plot:
        return []
    edges = [[0] * len(forecast.plot)]
    owners = [owner for owner in COLOURS if any(point.owners.get(owner) for point in forecast.plot)]
    for owner in owners:
        edges.append([low + point.owners.get(owner, 0) for low, point in zip(edges[-1], forecast.plot, strict=True)])
    return [(owner, lower, upper) for owner, (lower, upper) in zip(owners, pairwise(edges), strict=True)]
