"""The history of one batch, and in it the line that copies half-precision logits to float32."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

import torch

from memguard.facts import Place
from memguard.heap.frames import is_user_file
from memguard.probes.interface import AllocationHistory, Watch
from memguard.probes.peaks.history import MAX_ENTRIES
from memguard.source.model import Sources
from memguard.source.upcasts import cast_name

_TORCH: Final = str(Path(torch.__file__).parent)
LEAST, MOST = 0.75, 1.05
"""Share of the logits' size that a copy of them has: short of a token in each sequence, rounded up."""
WORTH = 0.07
"""Of a real device, taken by two copies: from there on they are worth the stack of each allocation of a batch."""


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


@final
class LogitsHistory:
    """Has the history written for one batch, unless somebody writes one already on a real device."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._mine = self.on = False

    def begin(self, nbytes: int) -> bool:
        """Switches it on, where copies of so many bytes are worth it; whether it is on."""
        history = self._watch.history
        if history is None or not self._is_worth_it(history, nbytes):
            return False
        self.on, self._mine = True, not history.records_history
        if self._mine:
            history.record_history(True, MAX_ENTRIES)
        return True

    def end(self) -> None:
        """Switches off what is on."""
        if self.on and self._mine and self._watch.history is not None:
            self._watch.history.record_history(False, MAX_ENTRIES)
        self.on = False

    def conclude(self, float32_bytes: int) -> Upcast | None:
        """Reads what was written and switches it off.

        Args:
            float32_bytes: The batch's logits in float32.
        """
        history = self._watch.history
        if not self.on or history is None:
            return None
        try:
            trace = [event for events in history.snapshot().get("device_traces", ()) for event in events]
        finally:
            self.end()
        return upcast_in(trace, float32_bytes)

    def _is_worth_it(self, history: AllocationHistory, nbytes: int) -> bool:
        if self._watch.device.startswith("virtual"):
            return True  # where all is slow, a history adds little
        total = self._watch.device_total_bytes
        return bool(total) and nbytes >= WORTH * (total or 0) and not history.records_history  # the user's own


def upcast_in(trace: list[dict[str, Any]], float32_bytes: int) -> Upcast | None:
    """The first tensor of the logits' size in float32 that is made while one of half its size is alive, and the peak.

    Logits that the model makes in float32, a loss in chunks and one that copies nothing have no such tensor.

    Args:
        trace: Allocator events of a batch in PyTorch's snapshot format, oldest first.
        float32_bytes: The logits' size in float32.
    """
    least, most = LEAST * float32_bytes, MOST * float32_bytes
    copies: dict[int, int] = {}
    halves: set[int] = set()
    first: list[dict[str, Any]] | None = None
    level = peak = at_peak = 0
    for event in trace:
        action, address, size = event.get("action"), event.get("addr", 0), int(event.get("size", 0))
        if action == "alloc":
            level += size
            if least < size <= most:
                copies[address] = size
                if first is None and halves:
                    first = list(event.get("frames") or ())
            elif least < 2 * size <= most:
                halves.add(address)
            if level > peak:
                peak, at_peak = level, sum(copies.values())
        elif action in ("free_requested", "free"):
            level -= size
            copies.pop(address, None)
            halves.discard(address)
    return Upcast(*_line_of(first), bytes=at_peak) if first is not None else None


def _line_of(frames: list[dict[str, Any]]) -> tuple[Place | None, bool]:
    by_user = True
    for frame in frames:
        name, line = str(frame.get("filename", "")), int(frame.get("line", 0))
        if not name or name.startswith(("??", _TORCH)):
            continue
        if is_user_file(name):
            source = Sources().get(name)
            if source is None or not 0 < line <= len(source.lines):
                return Place(file=name, line=line, function=str(frame.get("name", ""))), by_user
            function, text = source.scope_at(line), source.lines[line - 1].strip()
            name_of_copy = cast_name(function, line)
            return Place(file=name, line=line, function=function.path, holder=name_of_copy, source=text), by_user
        by_user = False
    return None, False
