"""A post-mortem in words: short for the bottom of a traceback, whole as Markdown for a file and the Memory tab."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from memguard.postmortem import PostMortem
from memguard.report.postmortem_words import (
    ELSEWHERE,
    OWNER_NAMES,
    REACHED,
    advice_text,
    headline,
    line_text,
    lines_title,
    owners_of,
    replayed_text,
    rest_of_lines,
    tensor_size,
    top_line_text,
)
from memguard.text.terminal import fold, printable
from memguard.text.units import format_bytes

NARROWEST, WIDEST = 60, 120


def render_short(told: PostMortem, report: str | None = None, *, width: int | None = None) -> str:
    """What stands under the traceback: what was asked, what held, why, what to change.

    Args:
        told: The post-mortem.
        report: Path of the whole report, if it could be written.
        width: Columns; None takes the terminal's.
    """
    if width is None:
        width = min(max(shutil.get_terminal_size((100, 24)).columns, NARROWEST), WIDEST)
    parts = [("memguard: ", headline(told))]
    held = [f"{OWNER_NAMES.get(name, name)} {format_bytes(nbytes)}" for name, nbytes in owners_of(told)[:4]]
    if held:
        parts.append(("  Held by: ", f"{', '.join(held)}."))
    if told.scene.objects.lines:
        lines = [
            f"{line_text(line.file, line.line)} {format_bytes(line.bytes)}" for line in told.scene.objects.lines[:2]
        ]
        rest = rest_of_lines(told, len(lines))
        lines += [f"{ELSEWHERE} {format_bytes(rest)}"] if rest else []
        known = "" if told.scene.objects.lines_allocated else f" (the lines {REACHED}; allocation history was off)"
        parts.append(("  By line: ", f"{', '.join(lines)}{known}."))
    parts.append(("  Why:     ", told.verdict.text))
    parts += [
        (f"  Change:  {number}. " if number == 1 else f"           {number}. ", advice_text(advice))
        for number, advice in enumerate(told.advice[:3], 1)
    ]
    text = [""]
    for head, body in parts:
        text += fold(body, width, first=head)
    if report is not None:
        text.append(f"  The whole report: {report}")
    return printable("\n".join(text))


def render_markdown(told: PostMortem) -> str:
    """The whole report."""
    return printable("\n".join(_markdown(told))) + "\n"


def _markdown(told: PostMortem) -> Iterator[str]:
    yield f"# Out of memory in {told.scene.stage.value} batch {told.scene.batch}"
    yield ""
    yield f"{headline(told)}"
    yield ""
    yield f"**Why.** {told.verdict.text}"
    if told.caught:
        yield ""
        yield "The program caught the error and went on."
    yield ""
    yield "## What to change"
    yield ""
    for number, advice in enumerate(told.advice, 1):
        yield f"{number}. {advice_text(advice)}"
    held = [(OWNER_NAMES.get(name, name), nbytes) for name, nbytes in owners_of(told)]
    yield from _table("What held the memory", ("owner", "bytes"), held)
    rest = rest_of_lines(told, len(told.scene.objects.lines))
    rows = [(top_line_text(line), line.bytes) for line in told.scene.objects.lines]
    yield from _table(lines_title(told), ("line", "bytes"), rows + ([(ELSEWHERE, rest)] if rest else []))
    if told.scene.objects.tensors:
        yield ""
        yield "## Largest tensors"
        yield ""
        yield "| tensor | shape | dtype | owner | size |"
        yield "|---|---|---|---|---|"
        for tensor in told.scene.objects.tensors:
            owner = OWNER_NAMES.get(tensor.owner, tensor.owner)
            yield f"| {tensor.name} | {list(tensor.shape)} | {tensor.dtype} | {owner} | {tensor_size(tensor)} |"
    if told.scene.replays:
        yield ""
        yield "## Replayed with other settings"
        yield ""
        for replayed in told.scene.replays:
            yield f"- {replayed_text(replayed)}"
    if told.findings:
        yield ""
        yield f"Earlier findings: {', '.join(told.findings)}."
    if told.scene.message:
        yield ""
        yield "## Original error"
        yield ""
        yield "```"
        yield told.scene.message
        yield "```"


def _table(title: str, head: tuple[str, str], rows: list[tuple[str, int]]) -> Iterator[str]:
    if not rows:
        return
    yield ""
    yield f"## {title}"
    yield ""
    yield f"| {head[0]} | {head[1]} |"
    yield "|---|---|"
    for name, nbytes in rows:
        yield f"| {name} | {format_bytes(nbytes)} |"
