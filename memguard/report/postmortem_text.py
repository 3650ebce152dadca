"""A post-mortem in words: short for the bottom of a traceback, whole as Markdown for a file and the Memory tab."""

from __future__ import annotations

import os
from collections.abc import Iterator

from memguard.facts import Place
from memguard.postmortem import PostMortem
from memguard.units import format_bytes

_OWNERS = {
    "parameters": "parameters",
    "buffers": "buffers",
    "gradients": "gradients",
    "optimizer_state": "optimizer state",
    "activations": "activations and saved tensors",
    "temporaries": "inputs and temporaries",
    "outputs": "outputs and other kept tensors",
    "other": "other (libraries, rounding, tensors that no Python object shows)",
}


def render_short(told: PostMortem, report: str | None = None) -> str:
    """What stands under the traceback: some ten lines.

    Args:
        told: The post-mortem.
        report: Path of the whole report, if it could be written.
    """
    lines = ["", f"memguard: {_headline(told)}", f"  Why: {told.why}"]
    held = _owners(told)
    if held:
        lines.append("  Held by: " + ", ".join(f"{name} {format_bytes(nbytes)}" for name, nbytes in held[:4]) + ".")
    if told.lines:
        where = ", ".join(f"{_line(line.file, line.line)} {format_bytes(line.bytes)}" for line in told.lines[:2])
        lines.append(f"  By line: {where}.")
    for number, advice in enumerate(told.advice[:3], 1):
        gain = f" (saves about {format_bytes(advice.gain_bytes)})" if advice.gain_bytes else ""
        lines.append(f"  {number}. {advice.text[:1].upper()}{advice.text[1:]}{gain}")
    if report is not None:
        lines.append(f"  The whole report: {report}")
    return "\n".join(lines)


def render_markdown(told: PostMortem) -> str:
    """The whole report."""
    return "\n".join(_markdown(told)) + "\n"


def _markdown(told: PostMortem) -> Iterator[str]:
    yield f"# Out of memory in {told.stage.value} batch {told.batch}"
    yield ""
    yield f"{_headline(told)}"
    yield ""
    yield f"**Why.** {told.why}"
    if told.caught:
        yield ""
        yield "The program caught the error and went on."
    yield ""
    yield "## What to change"
    yield ""
    for number, advice in enumerate(told.advice, 1):
        gain = f" Saves about {format_bytes(advice.gain_bytes)}." if advice.gain_bytes else ""
        yield f"{number}. {advice.text[:1].upper()}{advice.text[1:]}{gain}"
    yield from _table("What held the memory", ("owner", "bytes"), _owners(told))
    yield from _table(
        "By line",
        ("line", "bytes"),
        [
            (_line(line.file, line.line) + (f" in {line.function}" if line.function else ""), line.bytes)
            for line in told.lines
        ],
    )
    if told.tensors:
        yield ""
        yield "## Largest tensors"
        yield ""
        yield "| tensor | shape | dtype | owner | size |"
        yield "|---|---|---|---|---|"
        for tensor in told.tensors:
            owner = _OWNERS.get(tensor.owner, tensor.owner)
            size = format_bytes(tensor.bytes)
            yield f"| {tensor.name} | {list(tensor.shape)} | {tensor.dtype} | {owner} | {size} |"
    if told.replays:
        yield ""
        yield "## Replayed with other settings"
        yield ""
        for replayed in told.replays:
            fits = "fits" if replayed.fits else "does not fit"
            yield (
                f"- `{replayed.conf}`: {fits}, peaks at {format_bytes(replayed.reserved_peak_bytes)} reserved "
                f"(the last {replayed.events:,} events)"
            )
    if told.findings:
        yield ""
        yield f"Found before: {', '.join(told.findings)}."
    if told.message:
        yield ""
        yield "## PyTorch said"
        yield ""
        yield "```"
        yield told.message
        yield "```"


def _headline(told: PostMortem) -> str:
    request = told.request
    asked = f"{format_bytes(request.requested_bytes)} asked for" if request.requested_bytes is not None else "asked for"
    site = _place(told.site)
    asked += f" by {site}" if site else ""
    asked += f" in the {told.phase}" if told.phase else ""
    rank = f"rank {told.rank}, " if told.rank else ""
    free = []
    if request.free_bytes is not None and request.limit_bytes is not None:
        free.append(f"{format_bytes(request.free_bytes)} of {format_bytes(request.limit_bytes)} free")
    if request.allocated_bytes is not None:
        free.append(f"{format_bytes(request.allocated_bytes)} allocated")
    if request.reserved_bytes is not None:
        free.append(f"{format_bytes(request.reserved_bytes)} reserved")
    state = f"; {', '.join(free)}" if free else ""
    return f"out of memory on {told.device} ({rank}{told.stage.value} batch {told.batch}): {asked}{state}."


def _owners(told: PostMortem) -> list[tuple[str, int]]:
    held = sorted(((nbytes, name) for name, nbytes in told.owners.items() if nbytes), reverse=True)
    return [(_OWNERS.get(name, name), nbytes) for nbytes, name in held]


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


def _place(place: Place) -> str:
    return _line(place.file, place.line) if place.file else ""


def _line(file: str | None, line: int | None) -> str:
    if not file:
        return "unknown"
    return os.path.basename(file) + (f":{line}" if line else "")
