"""A post-mortem as one HTML file that needs nothing beside itself: to open from a disk, or to send."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from memguard.postmortem import PostMortem
from memguard.report.postmortem_words import (
    OWNER_NAMES,
    advice_text,
    asked,
    owners_of,
    replayed_text,
    top_line_text,
)
from memguard.units import format_bytes

_CODE: Final = re.compile(r"`([^`]+)`")
_OWNER_COLOURS: Final = {
    "parameters": ("#2f6fdb", "#6ea4ff"),
    "gradients": ("#6fa0f0", "#4673bd"),
    "optimizer_state": ("#0f8a7e", "#3fc2b3"),
    "buffers": ("#8fb8b4", "#2c7a72"),
    "activations": ("#e08a1e", "#f0a546"),
    "temporaries": ("#8a5cd6", "#b493f0"),
    "outputs": ("#c2448b", "#ea7dba"),
    "other": ("#b4bcc6", "#67727f"),
}
"""Of the Memory tab, on light and on dark."""
_STYLE: Final = """
:root{--background:#f6f7f9;--panel:#fff;--line:#e3e6ea;--text:#1c2128;--muted:#66707c;--code:#eef1f5;--critical:#c9352b;
--critical-soft:#fdf0ee}
@media(prefers-color-scheme:dark){:root{--background:#191c21;--panel:#22262d;--line:#343a43;--text:#e8ebef;
--muted:#9aa4b1;--code:#2c323b;--critical:#ff7b6e;--critical-soft:#35211f}}
*{box-sizing:border-box}
body{margin:0;background:var(--background);color:var(--text);
font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:960px;margin:0 auto;padding:24px 16px 48px;display:grid;gap:14px}
h1{font-size:20px;margin:0;overflow-wrap:anywhere}h2{font-size:15px;margin:0 0 6px}p{margin:4px 0}
section{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:14px 18px;overflow-x:auto}
section.headline{background:var(--critical-soft);border-left:4px solid var(--critical)}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.92em}
code{background:var(--code);border-radius:4px;padding:0 3px;overflow-wrap:anywhere}
pre{background:var(--code);border-radius:6px;padding:10px 12px;margin:0;white-space:pre-wrap;overflow-wrap:anywhere}
ol{margin:0;padding-left:22px}li{margin:4px 0}.muted{color:var(--muted)}
table{border-collapse:collapse;width:100%}th{text-align:left;color:var(--muted);font-weight:550}
th,td{padding:3px 10px 3px 0;border-bottom:1px solid var(--line);vertical-align:top}
.number{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
.bar{display:flex;height:22px;border-radius:5px;overflow:hidden;margin:4px 0 10px}
.bar i{min-width:1px}.key{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.5em}
"""


def render_html(told: PostMortem) -> str:
    """The page of one post-mortem."""
    title = f"Out of memory in {told.stage.value} batch {told.batch}"
    colours = "".join(f".{name}{{background:{light}}}" for name, (light, _) in _OWNER_COLOURS.items())
    dark = "".join(f".{name}{{background:{shade}}}" for name, (_, shade) in _OWNER_COLOURS.items())
    style = f"{_STYLE}{colours}@media(prefers-color-scheme:dark){{{dark}}}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{style}</style></head>\n<body><main>\n{chr(10).join(_sections(told, title))}\n</main></body></html>\n"
    )


def _sections(told: PostMortem, title: str) -> Iterator[str]:
    rank = f", rank {told.rank}" if told.rank else ""
    caught = "<p>The program caught the error and went on.</p>" if told.caught else ""
    text = asked(told)
    yield (
        f'<section class="headline"><h1>{escape(title)}</h1><p>{_inline(told.why)}</p>'
        f'<p class="muted">On {escape(told.device)}{rank}: {escape(text)}</p>{caught}</section>'
    )
    if told.advice:
        items = "".join(f"<li>{_inline(advice_text(advice))}</li>" for advice in told.advice)
        yield f"<section><h2>What to change</h2><ol>{items}</ol></section>"
    if owners_of(told):
        yield _owners(told)
    if told.lines:
        rows = [(escape(top_line_text(line)), format_bytes(line.bytes)) for line in told.lines]
        yield _table("By line", ("line", "size"), rows)
    if told.tensors:
        yield _table(
            "Largest tensors",
            ("tensor", "shape", "dtype", "owner", "size"),
            [
                (
                    _inline(tensor.name),
                    escape(str(list(tensor.shape))),
                    escape(tensor.dtype),
                    escape(OWNER_NAMES.get(tensor.owner, tensor.owner)),
                    format_bytes(tensor.bytes),
                )
                for tensor in told.tensors
            ],
        )
    if told.replays:
        items = "".join(f"<li>{_inline(replayed_text(replayed))}</li>" for replayed in told.replays)
        yield f"<section><h2>Replayed with other settings</h2><ol>{items}</ol></section>"
    if told.findings:
        codes = ", ".join(escape(code) for code in told.findings)
        yield f"<section><h2>Found before</h2><p>{codes}</p></section>"
    if told.message:
        yield f"<section><h2>PyTorch said</h2><pre>{escape(told.message)}</pre></section>"


def _owners(told: PostMortem) -> str:
    held = owners_of(told)
    total = sum(nbytes for _, nbytes in held)
    bar = "".join(
        f'<i class="{escape(name)}" style="flex-grow:{nbytes}" '
        f'title="{escape(OWNER_NAMES.get(name, name))}: {format_bytes(nbytes)}"></i>'
        for name, nbytes in held
    )
    rows = "".join(
        f'<tr><td><span class="key {escape(name)}"></span>{escape(OWNER_NAMES.get(name, name))}</td>'
        f'<td class="number">{format_bytes(nbytes)}</td><td class="number">{nbytes / total:.0%}</td></tr>'
        for name, nbytes in held
    )
    return f'<section><h2>What held the memory</h2><div class="bar">{bar}</div><table>{rows}</table></section>'


def _table(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table whose cells are HTML already, the last one a number."""
    heads = "".join(f"<th>{each}</th>" for each in head[:-1]) + f'<th class="number">{head[-1]}</th>'
    body = "".join(
        f'<tr>{"".join(f"<td>{cell}</td>" for cell in row[:-1])}<td class="number">{row[-1]}</td></tr>' for row in rows
    )
    return f"<section><h2>{title}</h2><table><tr>{heads}</tr>{body}</table></section>"


def _inline(text: str) -> str:
    return _CODE.sub(r"<code>\1</code>", escape(text))
