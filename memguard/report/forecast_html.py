"""A forecast as one HTML file that needs nothing beside itself: verdict, drawing, owners, lines, what would help."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memguard.report.forecast_plot import COLOURS
from memguard.report.forecast_svg import css_class, forecast_svg
from memguard.report.forecast_text import (
    batch_text,
    help_title,
    matrix,
    near_edge_text,
    place_text,
    unforeseen,
    verdict_text,
)
from memguard.report.page import page
from memguard.text.units import format_bytes

if TYPE_CHECKING:
    from memguard.forecast.result import Forecast

_STYLE: Final = """
svg{display:block}svg text{font-size:12px;fill:var(--muted)}svg .strong{fill:var(--text);font-weight:600}
.grid{stroke:var(--line)}.axis{stroke:var(--muted);stroke-dasharray:2 3;opacity:.6}.peak{fill:var(--text)}
.limit{stroke:var(--critical);stroke-width:1.5;stroke-dasharray:7 4}
svg .limit-text{fill:var(--critical);font-weight:600}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:14px}
.figures div{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:12px 16px}
.figures b{display:block;font-size:22px;font-variant-numeric:tabular-nums;line-height:1.35}
.good-text{color:var(--good)}.warning-text{color:var(--warning)}.critical-text{color:var(--critical)}
.share{position:relative;width:34%;min-width:120px}.share i{display:block;height:10px;border-radius:3px;margin-top:6px}
"""
_TONES: Final = {"fits": "good", "fits only with retries": "warning", "does not fit": "critical"}
_MOST = 8
_UNUSED_SHARE = 0.001
"""Below it the owners' figures and the allocated peak, rounded as they are shown, agree."""


def forecast_html(forecast: Forecast) -> str:
    """The page."""
    colours = {css_class(owner): (colour, colour) for owner, colour in COLOURS.items()}
    title = f"The step {forecast.verdict} on {forecast.device}" if forecast.verdict else "Forecast of a training step"
    return page(title, _sections(forecast, title), colours, _STYLE)


def write_forecast_html(forecast: Forecast, path: Path) -> None:
    """Write the page to `path`."""
    path.write_text(forecast_html(forecast), encoding="utf-8")


def _sections(forecast: Forecast, title: str) -> Iterator[str]:
    verdict = verdict_text(forecast)[0].removeprefix(f"{title}: ")
    said = [verdict[0].upper() + verdict[1:], *near_edge_text(forecast), *batch_text(forecast)]
    tone = _TONES.get(forecast.verdict or "", "warning")
    lines = "".join(f"<p>{escape(line)}</p>" for line in said)
    yield f'<section class="headline {tone}"><h1>{escape(title)}</h1>{lines}</section>'
    yield _figures(forecast)
    drawing = forecast_svg(forecast)
    if drawing:
        keys = "".join(
            f'<span class="muted" style="margin-right:1.2em"><span class="key {css_class(owner)}"></span>{owner}</span>'
            for owner in COLOURS
            if any(point.owners.get(owner) for point in forecast.plot)
        )
        yield f"<section><h2>Allocated memory in step {forecast.peak_step + 1}</h2>{drawing}<p>{keys}</p></section>"
    yield _owners(forecast)
    if forecast.suggestions:
        yield _table(
            help_title(forecast),
            ("change", "what to write", "cost", "reserved", "verdict"),
            [
                (
                    escape(s.name),
                    f"<code>{escape(s.change)}</code>",
                    escape(s.cost),
                    format_bytes(s.reserved_peak_bytes),
                    _verdict(s.verdict),
                )
                for s in forecast.suggestions
            ],
        )
    if forecast.table:
        heads, rows = matrix(forecast)
        reasons = "".join(f"<p>- cannot be forecast: {escape(text)}</p>" for text in unforeseen(forecast))
        yield _table(
            "Reserved by card" if heads[1] == "reserved" else "Reserved by card and batch size",
            heads,
            [[escape(row[0]), *(_matrix_cell(cell) for cell in row[1:])] for row in rows],
            below=reasons,
        )
    lines_of = [
        (f"<code>{escape(place_text(line))}</code>", format_bytes(line.bytes)) for line in forecast.lines[:_MOST]
    ]
    yield _table("Alive at the peak, by line", ("line", "size"), lines_of)
    modules = [(f"<code>{escape(share.name)}</code>", format_bytes(share.bytes)) for share in forecast.modules[:_MOST]]
    yield _table("Alive at the peak, by module", ("module", "size"), modules)
    yield _honest(forecast)


def _figures(forecast: Forecast) -> str:
    room = forecast.usable_bytes
    found = [
        ("peak allocated", forecast.allocated_peak_bytes, _between(forecast.allocated_peak_bytes_range)),
        ("peak reserved", forecast.reserved_peak_bytes, _between(forecast.reserved_peak_bytes_range)),
        (
            "between steps",
            forecast.steady_step.allocated_end_bytes,
            f"first step's peak {format_bytes(forecast.first_step.allocated_peak_bytes)}",
        ),
    ]
    if room is not None:
        taken = format_bytes(forecast.context_bytes)
        note = f"of {format_bytes(forecast.device_total_bytes or 0)}; {taken} for CUDA itself"
        found.append(("for PyTorch", room, note if forecast.context_bytes else "all of it"))
    boxes = "".join(
        f'<div><span class="muted">{name}</span><b>{format_bytes(size)}</b>'
        f'<span class="muted">{escape(note)}</span></div>'
        for name, size, note in found
    )
    return f'<div class="figures">{boxes}</div>'


def _owners(forecast: Forecast) -> str:
    largest = max((share.bytes for share in forecast.owners), default=1)
    rows = ""
    for share in forecast.owners:
        name, wide = css_class(share.name), 100 * share.bytes / largest
        rows += (
            f'<tr><td><span class="key {name}"></span>{escape(share.name)}</td>'
            f'<td class="share"><i class="{name}" style="width:{wide:.1f}%"></i></td>'
            f'<td class="number">{format_bytes(share.bytes)}</td></tr>'
        )
    unused = forecast.allocated_peak_bytes - sum(share.bytes for share in forecast.owners)
    if unused > _UNUSED_SHARE * forecast.allocated_peak_bytes:
        rows += (
            '<tr class="muted"><td colspan="2">ends of blocks that nothing uses, which the drawing leaves out</td>'
            f'<td class="number">{format_bytes(unused)}</td></tr>'
        )
    where = ""
    if forecast.peak_line is not None:
        place = escape(place_text(forecast.peak_line))
        where = f'<p class="muted">Reached in {forecast.peak_phase}, at <code>{place}</code></p>'
    return f"<section><h2>What holds the peak</h2>{where}<table>{rows}</table></section>"


def _honest(forecast: Forecast) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in (*forecast.range_sources, *forecast.notes))
    how = f"{forecast.operators:,} operators in {forecast.seconds:.1f} s: {forecast.method}, as torch "
    conf = f", with PYTORCH_CUDA_ALLOC_CONF={forecast.alloc_conf}" if forecast.alloc_conf else ""
    said = escape(f"{how}{forecast.torch_version} runs it{conf}.")
    title = "What is not known, and what was assumed"
    return f'<section><h2>{title}</h2><ul>{items}</ul><p class="muted">{said}</p></section>'


def _table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], below: str = "") -> str:
    numbers = {index for index, head in enumerate(heads) if head.split()[0] in ("size", "reserved", "batch", "largest")}

    def cell(kind: str, index: int, text: str) -> str:
        return f"<{kind}{' class=number' if index in numbers else ''}>{text}</{kind}>"

    top = "".join(cell("th", index, head) for index, head in enumerate(heads))
    body = "".join(f"<tr>{''.join(cell('td', i, text) for i, text in enumerate(row))}</tr>" for row in rows)
    return f"<section><h2>{title}</h2><table><tr>{top}</tr>{body}</table>{below}</section>"


def _matrix_cell(text: str) -> str:
    """A size in the colour of its verdict."""
    size, _, mark = text.partition(" ~" if text.endswith("~") else " x")
    verdict = "fits only with retries" if text.endswith("~") else "does not fit" if text.endswith("x") else ""
    del mark
    return f'<span class="{_TONES[verdict]}-text" title="{verdict}">{escape(size)}</span>' if verdict else escape(text)


def _verdict(text: str) -> str:
    return f'<span class="{_TONES.get(text, "warning")}-text">{escape(text)}</span>'


def _between(bounds: tuple[int, int]) -> str:
    return f"between {format_bytes(bounds[0])} and {format_bytes(bounds[1])}"
