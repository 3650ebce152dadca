"""A post-mortem as one HTML file that needs nothing beside itself: to open from a disk, or to send."""

from __future__ import annotations

from typing import Final

from memguard.postmortem import PostMortem
from memguard.report.page import render_template
from memguard.report.postmortem_words import (
    ELSEWHERE,
    OWNER_NAMES,
    advice_text,
    asked,
    lines_title,
    owners_of,
    replayed_text,
    rest_of_lines,
    tensor_size,
    top_line_text,
)
from memguard.text.units import format_bytes

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
    owners = [(name, OWNER_NAMES.get(name, name), nbytes) for name, nbytes in owners_of(told)]
    lines = [(top_line_text(line), line.bytes) for line in told.scene.objects.lines]
    if lines and (rest := rest_of_lines(told, len(lines))):
        lines.append((ELSEWHERE, rest))
    return render_template(
        "postmortem",
        title=f"Out of memory in {told.scene.stage.value} batch {told.scene.batch}",
        colours=_OWNER_COLOURS,
        told=told,
        asked=asked(told),
        advice=[advice_text(advice) for advice in told.advice],
        owners=owners,
        total=sum(nbytes for _, _, nbytes in owners),
        lines_title=lines_title(told) if lines else "",
        lines=[(name, format_bytes(nbytes)) for name, nbytes in lines],
        tensors=[
            (each.name, list(each.shape), each.dtype, OWNER_NAMES.get(each.owner, each.owner), tensor_size(each))
            for each in told.scene.objects.tensors
        ],
        replays=[replayed_text(replayed) for replayed in told.scene.replays],
    )
