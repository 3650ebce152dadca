"""The line that casts half-precision logits to float32, from the allocation history of one batch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import torch

from memguard.heap.frames import is_user_file
from memguard.records.facts import Place
from memguard.source.model import Sources
from memguard.source.upcasts import cast_name

if TYPE_CHECKING:
    from memguard.allocator.snapshot import Stack
    from memguard.allocator.timeline import AllocationTimeline

_TORCH: Final = str(Path(torch.__file__).parent)
LEAST, MOST = 0.75, 1.05
"""Share of the logits' size that a copy of them has: short of a token in each sequence, rounded up."""
SLICES = 8
"""Into so many a loss in chunks is thought to cut the logits: fewer than those of torch and of liger-kernel."""


@final
@dataclass(frozen=True, slots=True)
class Upcast:
    """What a batch's history tells of its logits."""

    place: Place | None
    """The user's line that made the first float32 copy; None where only a library's code ran."""
    by_user: bool
    """Whether that line called the operator itself, with no library but torch between them."""
    bytes: int
    """All tensors of the size of such a copy that are alive at the peak: also log-softmax and gradient."""


def upcast_in(timeline: AllocationTimeline, float32_bytes: int) -> Upcast | None:
    """The first tensor of the logits' size in float32 that is made while one of half its size is alive, and the peak.

    Logits that the model makes in float32, a loss in chunks and one that copies nothing have no such tensor.

    Args:
        timeline: One batch.
        float32_bytes: The logits' size in float32.
    """
    least, most = LEAST * float32_bytes, MOST * float32_bytes
    copies = [block for block in timeline.blocks if least < block.size <= most]
    halves = [block for block in timeline.blocks if least < 2 * block.size <= most]
    first = next((copy for copy in copies if any(half.is_alive(copy.made) for half in halves)), None)
    if first is None:
        return None
    at = timeline.peak().event
    return Upcast(*_line_of(timeline.stack(first.made)), bytes=sum(copy.size for copy in copies if copy.is_alive(at)))


def saved_by_slices(timeline: AllocationTimeline, logits_bytes: int, float32_bytes: int) -> int:
    """How much lower a batch's peak is where all that has the logits' size comes in slices, one after the other.

    Args:
        timeline: One batch.
        logits_bytes: The logits' size as the model makes them.
        float32_bytes: In float32.
    """
    sizes = {logits_bytes, float32_bytes}
    blocks = [b for b in timeline.blocks if any(LEAST * size < b.size <= MOST * size for size in sizes)]
    peak = timeline.peak()
    slices = sum(block.size for block in blocks if block.is_alive(peak.event)) // SLICES
    return max(peak.bytes - timeline.peak({block: block.made for block in blocks}).bytes - slices, 0)


def _line_of(stack: Stack) -> tuple[Place | None, bool]:
    by_user = True
    for file, line, name in stack:
        if file.startswith(_TORCH):
            continue
        if is_user_file(file):
            source = Sources().get(file)
            if source is None or not 0 < line <= len(source.lines):
                return Place(file=file, line=line, function=name), by_user
            function, text = source.scope_at(line), source.code(line)
            name_of_copy = cast_name(function, line)
            return Place(file=file, line=line, function=function.path, holder=name_of_copy, source=text), by_user
        by_user = False
    return None, False
