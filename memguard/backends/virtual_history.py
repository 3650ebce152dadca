"""The virtual GPU's allocation history: what happened, and by which line, in PyTorch's snapshot format."""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path
from types import FrameType
from typing import Any, Final, final

import torch

from memguard.clocks import time_ns

_OURS, _TORCH = Path(__file__).parents[1], Path(torch.__file__).parent
_NOT_THE_CALLER: Final = tuple(
    map(str, (_OURS / "backends", _OURS / "allocator", _TORCH / "_compile.py", _TORCH / "_dynamo", _TORCH / "_ops.py"))
)
"""Between the allocator and the line that called an operator."""
_MOST_FRAMES: Final = 120
Frame = dict[str, Any]


@final
class History:
    """A bounded ring of allocator events with stacks; of which it hears while it is on."""

    def __init__(self) -> None:
        self._enabled = False
        self._events: deque[dict[str, Any]] = deque(maxlen=0)
        self._stacks: dict[int, list[Frame]] = {}
        self._frames: dict[tuple[str, int, str], Frame] = {}
        """Each frame once, as PyTorch's own snapshots have it: thousands of stacks share a few hundred."""

    @property
    def enabled(self) -> bool:
        """Whether it is on."""
        return self._enabled

    def record(self, enabled: bool, max_entries: int) -> None:
        """Switches the history on with room for so many events, or off, which forgets everything."""
        self._enabled = enabled
        self._events = deque(self._events if enabled else (), maxlen=max_entries if enabled else 0)
        if not enabled:
            self._stacks.clear()
            self._frames.clear()

    def hear(self, action: str, address: int, nbytes: int, stream: int) -> None:
        """Notes one event of the allocator."""
        frames: list[Frame] = []
        if action == "alloc":
            frames = self._stacks[address] = self._stack()
        elif action == "free_requested":
            frames = self._stacks.get(address, [])
        elif action == "free_completed":
            frames = self._stacks.pop(address, [])
        elif action in ("oom", "segment_alloc", "segment_map"):
            frames = self._stack()
        event = {
            "action": action,
            "addr": address,
            "size": nbytes,
            "stream": stream,
            "time_us": time_ns() // 1000,
            "compile_context": "N/A",
            "user_metadata": "",
            "frames": frames,
        }
        if action == "oom":
            event["device_free"] = event.pop("addr")
        self._events.append(event)

    def complete(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        """The allocator's snapshot with the stacks of its blocks and the trace."""
        for segment in snapshot["segments"]:
            for block in segment["blocks"]:
                if block["state"] != "inactive":
                    block["frames"] = self._stacks.get(block["address"], [])
        snapshot["device_traces"] = [list(self._events)]
        return snapshot

    def _stack(self) -> list[Frame]:
        """The Python stack, innermost first, from the line that called the operator; no frame is kept alive."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_CALLER):
            frame = frame.f_back
        frames: list[Frame] = []
        while frame is not None and len(frames) < _MOST_FRAMES:
            code = frame.f_code
            key = (code.co_filename, frame.f_lineno, code.co_name)
            known = self._frames.get(key)
            if known is None:
                known = self._frames[key] = {"filename": key[0], "line": key[1], "name": key[2]}
            frames.append(known)
            frame = frame.f_back
        return frames
