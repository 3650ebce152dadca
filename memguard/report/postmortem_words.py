"""The words that every form of a post-mortem shares: headline, owners, places, advice."""

from __future__ import annotations

from typing import Final

from memguard.postmortem import PostMortem
from memguard.postmortem.scene import Replayed, TopLine, TopTensor
from memguard.postmortem.verdict import Advice
from memguard.records.facts import Place
from memguard.text import places
from memguard.text.units import format_bytes

LITTLE = 0.01
ELSEWHERE: Final = "elsewhere"
"""What no line tells of: libraries' and objects' own, or allocated before stacks were recorded."""
REACHED: Final = "that the functions holding it had reached"
"""What the lines are where no history tells which ones allocated."""
OWNER_NAMES: Final = {
    "parameters": "parameters",
    "buffers": "buffers",
    "gradients": "gradients",
    "optimizer_state": "optimizer state",
    "activations": "activations and saved tensors",
    "temporaries": "inputs and temporaries",
    "outputs": "outputs and other kept tensors",
    "other": "other (libraries, rounding, tensors that no Python object shows)",
}


def headline(told: PostMortem) -> str:
    """What failed where, like ``"out of memory on cuda:0 (train batch 11): 482 MiB asked for by train.py:86 ..."``."""
    scene = told.scene
    rank = f"rank {scene.rank}, " if scene.rank else ""
    phase = f", {scene.in_phase.in_words()}" if scene.in_phase is not None else ""
    return f"out of memory on {scene.device} ({rank}{scene.stage.value} batch {scene.batch}{phase}): {asked(told)}"


def asked(told: PostMortem) -> str:
    """What was asked for, by which line, and what there was for it."""
    request = told.scene.request
    text = f"{format_bytes(request.requested_bytes)} asked for" if request.requested_bytes is not None else "asked for"
    site = place_text(told.scene.objects.site)
    text += f" by {site}" if site else ""
    text += f" in the {told.scene.objects.phase}" if told.scene.objects.phase else ""
    there = []
    if request.free_bytes is not None and request.limit_bytes is not None:
        there.append(f"{format_bytes(request.free_bytes)} of {format_bytes(request.limit_bytes)} free")
    if request.allocated_bytes is not None:
        there.append(f"{format_bytes(request.allocated_bytes)} allocated")
    if request.reserved_bytes is not None:
        there.append(f"{format_bytes(request.reserved_bytes)} reserved")
    return f"{text}; {', '.join(there)}." if there else f"{text}."


def owners_of(told: PostMortem) -> list[tuple[str, int]]:
    """The owners' keys with their bytes, the largest first; none without any."""
    return sorted(
        ((name, nbytes) for name, nbytes in told.scene.objects.owners.items() if nbytes), key=lambda each: -each[1]
    )


def advice_text(advice: Advice) -> str:
    """One change, with its gain."""
    gain = f" Saves about {format_bytes(advice.gain_bytes)}." if advice.gain_bytes else ""
    return f"{advice.text[:1].upper()}{advice.text[1:]}{gain}"


def tensor_size(tensor: TopTensor) -> str:
    """Bytes of a tensor, and of how many."""
    return f"{f'{tensor.count:,} x ' if tensor.count > 1 else ''}{format_bytes(tensor.bytes)}"


def rest_of_lines(told: PostMortem, shown: int) -> int:
    """Allocated bytes of which the first so many lines tell nothing; 0 where that is next to nothing, or not known."""
    allocated = told.scene.request.allocated_bytes or 0
    rest = allocated - sum(line.bytes for line in told.scene.objects.lines[:shown])
    return rest if told.scene.objects.lines and rest > LITTLE * allocated else 0


def lines_title(told: PostMortem) -> str:
    """What a table of the lines is called."""
    return "By line" if told.scene.objects.lines_allocated else f"By line {REACHED}"


def replayed_text(replayed: Replayed) -> str:
    """What was replayed, and what came of it: no more than that is proven."""
    fits = "fits" if replayed.fits else "does not fit"
    batches = f" of the last {replayed.batches} batches" if replayed.batches is not None else ""
    return (
        f"`{replayed.conf}`: {fits}, peaks at {format_bytes(replayed.reserved_peak_bytes)} reserved "
        f"({replayed.events:,} allocations and frees{batches}, on what was in use before them, laid out anew)"
    )


def place_text(place: Place) -> str:
    """Like ``"train.py:86"``; empty where it is not known."""
    return line_text(place.file, place.line) if place.file else ""


def line_text(file: str | None, line: int | None) -> str:
    """Like ``"train.py:86"``."""
    if not file:
        return "unknown"
    return places.place_text(file, line)


def top_line_text(line: TopLine) -> str:
    """A line with its function."""
    return line_text(line.file, line.line) + (f" in {line.function}" if line.function else "")
