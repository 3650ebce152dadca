"""What differs between the highest rank and the others in one optimizer step: inputs, and memory held. No torch."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple, Protocol

from memguard.records.findings import Finding
from memguard.records.stats import Stage
from memguard.report.ranks import Spread
from memguard.report.text import shapes_text
from memguard.text.units import format_bytes

_MOST_ASKED = 32
"""Other ranks whose inputs and owners are looked up."""
_PART = 0.3
"""Share of the difference that something must make up to be named as its cause."""
_LARGER = 1.1
"""How many times the elements of the others' inputs are worth a word."""
_SPLIT = "split the model, or the state of its optimizer, more evenly over the ranks."
_OWNERS = {
    "parameters_bytes": "parameters",
    "gradients_bytes": "gradients",
    "optimizer_bytes": "optimizer state",
    "buffers_bytes": "buffers",
}


class Cause(NamedTuple):
    """One reason, and what helps against it."""

    text: str
    advice: str = ""


class Evidence(Protocol):
    """What is known of one rank besides its records."""

    @property
    def findings(self) -> Sequence[Finding]:
        """The newest state of each."""

    @property
    def oom(self) -> dict[str, Any] | None:
        """Its post-mortem, if it ran out of memory."""

    @property
    def session(self) -> dict[str, Any]:
        """What it said of itself."""

    @property
    def stages(self) -> Collection[Stage]:
        """Those of which it has a record."""

    def shapes(self, number: int) -> list[Any] | None:
        """The input shapes behind a record's number."""

    def owners(self, batch: int) -> dict[str, Any] | None:
        """The owners recorded nearest to a batch."""


def row_of(spread: Spread, rank: int, at: int) -> dict[str, int]:
    """A rank's highest record in a stretch: its ``peak`` and what `memguard.report.ranks.Heights` keeps; -1 unknown."""
    number = spread.ranks.index(rank)
    rows = spread.heights[number].rows
    inside = at < len(rows["batch"])
    return {"peak": int(spread.table[number, at]), **{k: int(v[at]) if inside else -1 for k, v in rows.items()}}


def differences(spread: Spread, at: int, worst: int, others: list[int], ranks: Mapping[int, Evidence]) -> list[Cause]:
    """What differs in the step of the highest peak: inputs, and memory held before the batch."""
    own, rows = row_of(spread, worst, at), {rank: row_of(spread, rank, at) for rank in others}
    gap = own["peak"] - median(row["peak"] for row in rows.values())
    if gap <= 0:
        return []
    sample = others[:: max(1, len(others) // _MOST_ASKED)][:_MOST_ASKED]
    causes = _larger_inputs(own, {rank: rows[rank] for rank in sample}, worst, ranks)
    owner = _owner(ranks, worst, sample, own["batch"], _PART * gap)
    floors = [row["allocated_start_bytes"] for row in rows.values() if row["allocated_start_bytes"] >= 0]
    held = own["allocated_start_bytes"] - median(floors) if own["allocated_start_bytes"] >= 0 and floors else 0
    if held > _PART * gap:
        text = f"it holds {format_bytes(int(held))} more than the others before the batch begins"
        causes.append(Cause(text + (f": {owner}" if owner else ""), _SPLIT if owner else ""))
    elif owner:
        causes.append(Cause(f"it holds more of the model: {owner}", _SPLIT))
    return causes


def _larger_inputs(
    own: dict[str, int], rows: Mapping[int, dict[str, int]], worst: int, ranks: Mapping[int, Evidence]
) -> list[Cause]:
    """The inputs of the step, if this rank's are larger than those of the ranks that do the same."""
    alike = [rank for rank, row in rows.items() if row["stage"] == own["stage"] and row["shapes"] >= 0]
    mine = ranks[worst].shapes(own["shapes"]) if own["shapes"] >= 0 else None
    theirs = [shapes for rank in alike if (shapes := ranks[rank].shapes(rows[rank]["shapes"]))]
    if not mine or not theirs:
        return []
    typical = sorted(theirs, key=_elements)[len(theirs) // 2]
    ratio = _elements(mine) / max(_elements(typical), 1)
    if ratio <= _LARGER:
        return []
    elsewhere = f"in the same step elsewhere {shapes_text(typical)}"
    text = f"its inputs are {ratio:.1f} times as large: {shapes_text(mine)}, {elsewhere}"
    return [Cause(text, "give every rank batches of as many elements (sort or pack by length in the sampler).")]


def _owner(ranks: Mapping[int, Evidence], worst: int, sample: list[int], batch: int, least: float) -> str:
    """What of the model this rank holds more of than the others, where that is more than the least; largest first."""
    own = _owners(ranks[worst], batch)
    theirs = [owners for rank in sample if (owners := _owners(ranks[rank], batch))]
    if not own or not theirs:
        return ""
    usual = {name: int(median(owners.get(name, 0) for owners in theirs)) for name in _OWNERS}
    more = {name: own.get(name, 0) - usual[name] for name in _OWNERS}
    if sum(more.values()) <= least:
        return ""
    names = sorted((name for name in more if more[name] > sum(more.values()) / 5), key=lambda name: -more[name])
    parts = (f"{_OWNERS[name]} {format_bytes(own[name])}, {format_bytes(usual[name])} elsewhere" for name in names)
    return "; ".join(parts)


def _owners(rank: Evidence, batch: int) -> dict[str, int]:
    line = rank.owners(batch) or {}
    return {name: line[name] for name in _OWNERS if isinstance(line.get(name), int)}


def _elements(shapes: list[Any]) -> int:
    """Elements of all inputs."""
    sizes = [entry[1] for entry in shapes if isinstance(entry, (list, tuple)) and len(entry) > 1]
    return sum(math.prod(size) for size in sizes if isinstance(size, (list, tuple)) and all(map(_is_whole, size)))


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and value >= 0
