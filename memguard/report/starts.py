"""The starts of one rank in one directory: a training that was resumed there, or runs that share it. No torch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from memguard.recording.reader import Recording
from memguard.records.summary import Summary
from memguard.report.text import columns

_MOST = 12


@final
@dataclass(slots=True, kw_only=True)
class Start:
    """One of them."""

    path: Path
    source: str
    """What to call its recording: its path, or its URL."""
    time: float | None
    """When it began; seconds since 1970."""
    device: str
    kind: tuple[object, ...]
    """What starts must have in common for their numbers to be told together."""
    batches: int
    ended: str | None
    told: bool = True
    """Whether it is part of what is told of the rank."""

    def to_json(self) -> dict[str, Any]:
        """The start under the keys of the report's JSON contract."""
        return {
            "time": self.time,
            "device": self.device,
            "batches": self.batches,
            "ended": self.ended,
            "recording": self.source,
            "told": self.told,
        }


def start_of(recording: Recording, summary: Summary) -> Start:
    """What is told of one recording as a start."""
    kind = summary.device.partition(":")[0]
    alike = (kind,) if kind == "cpu" else (kind, summary.device_name, summary.device_total_bytes)
    return Start(
        path=recording.path,
        source=recording.source,
        time=next((line["time"] for line in recording.of_kind("session") if line.get("time") is not None), None),
        device=summary.device,
        kind=alike,
        batches=summary.batches,
        ended=summary.ended,
    )


def start_lines(starts: Sequence[Start]) -> list[str]:
    """Each with its time, device and batches, as lines of text; nothing for a single one."""
    if len(starts) < 2:
        return []
    rows: list[tuple[str, ...]] = [("start", "device", "batches", "ended", "recording")]
    for each in starts[-_MOST:]:
        ended = (each.ended or "without a word, or still runs") + ("" if each.told else " (left out)")
        rows.append((_when(each), each.device, str(each.batches), ended, each.path.name))
    lines = ["", f"{_head(starts)}:", *(f"  {line}" for line in columns(rows))]
    if len(starts) > _MOST:
        lines.append(f"  and {len(starts) - _MOST} earlier ones")
    return [*lines, "Give a recording's path to read that start alone."]


def page_note(starts: Sequence[Start]) -> str | None:
    """The same in a sentence for the page, which shows the newest; None for a single one."""
    if len(starts) < 2:
        return None
    listed = "; ".join(f"{_when(each)} on {each.device}, {each.batches} batches" for each in starts[-_MOST:])
    return f"{len(starts)} starts are in this directory; this page shows the newest ({listed})"


def _head(starts: Sequence[Start]) -> str:
    told = sum(each.told for each in starts)
    if told == len(starts):
        return f"{told} starts are in this directory and are read as one run"
    newest = "the newest" if told == 1 else f"the newest {told}"
    device = starts[-1].device
    return f"{len(starts)} starts are in this directory; this report covers {newest}, on {device}, and no other"


def _when(start: Start) -> str:
    if start.time is None:
        return "unknown"
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(start.time))
    except (ValueError, OverflowError, OSError):  # a stranger's number
        return "unknown"
