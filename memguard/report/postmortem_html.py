"""A post-mortem as one HTML file that needs nothing beside itself: to open from a disk, or to send."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from memguard.postmortem import PostMortem
from memguard.report.page import page
from memguard.report.postmortem_words import (
    ELSEWHERE,
    OWNER_NAMES,
    advice_text,
    asked,
    lines_title,
    owners_of,
    replayed_text,
    rest_of_lines,
    top_line_text,
)
from memguard.text.units import format_bytes

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


def render_html(told: PostMortem) -> str:
    """The page of one post-mortem."""
    title = f"Out of memory in {told.stage.value} batch {told.batch}"
    return page(title, _sections(told, title), _OWNER_COLOURS)


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
        rest = rest_of_lines(told, len(told.lines))
        rows += [(ELSEWHERE, format_bytes(rest))] if rest else []
        yield _table(lines_title(told), ("line", "size"), rows)
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
        yield f"<section><h2>Earlier findings</h2><p>{codes}</p></section>"
    if told.message:
        yield f"<section><h2>Original error</h2><pre>{escape(told.message)}</pre></section>"


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
