"""Allocations of the newest batches on a virtual GPU, each with its tensor's shape."""

from __future__ import annotations

from collections import deque
from typing import Final, final

from memguard.postmortem.scene import Event, Steps

BATCHES: Final = 8
MOST_EVENTS: Final = 40_000
"""In all: some 8 MB on the host, and a second to be replayed a few times."""


@final
class StepTrace:
    """The blocks in use, and the events of the newest batches in a bounded memory. Safe to call from any thread."""

    def __init__(self) -> None:
        self._live: dict[int, Event] = {}
        self._batches: deque[list[Event]] = deque(maxlen=BATCHES)
        self._open: list[Event] = []
        self._forward: int | None = None
        self.wanted: Event | None = None
        """The newest block asked for; where the device had none, the one that failed."""

    def took(self, event: Event) -> None:
        """A block was handed out."""
        self._live[event.block] = event
        if len(self._open) < MOST_EVENTS:
            self._open.append(event)

    def freed(self, address: int) -> None:
        """A block was given back."""
        event = self._live.pop(address, None)
        if event is not None and len(self._open) < MOST_EVENTS:
            self._open.append(Event(address, event.nbytes, event.shape, True))

    def boundary(self) -> None:
        """A batch ended."""
        kept = self._batches
        if len(self._open) >= MOST_EVENTS:
            kept.clear()  # longer than may be remembered: no batch before it stands for it
        elif self._open:
            kept.append(self._open)
            while sum(map(len, kept)) > MOST_EVENTS:
                kept.popleft()
        self._open, self._forward = [], None

    def forward(self) -> None:
        """A root model is called: what the open batch makes from now on is its own."""
        if self._forward is None:
            self._forward = len(self._open)

    def steps(self) -> Steps | None:
        """All of it as plain data; None where the open batch was too long."""
        if len(self._open) >= MOST_EVENTS:
            return None
        at = self._forward or 0
        return Steps(
            live=tuple(self._live.values()),
            batches=tuple(tuple(batch) for batch in self._batches),
            before=tuple(self._open[:at]),
            events=tuple(self._open[at:]),
            wanted=self.wanted,
        )
