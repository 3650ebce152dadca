"""Allocations of the newest batches on a virtual GPU, each with its tensor's shape."""

from __future__ import annotations

from collections import deque
from typing import Final, final

from memguard.postmortem.scene import Event, Steps

BATCHES: Final = 8
MOST_EVENTS: Final = 40_000
"""In all: some 8 MB on the host, and a second to be replayed a few times."""


_Taken = tuple[int, int, tuple[int, ...]]
"""The address, the bytes and the shape of a block that was handed out; alone in a tuple where it was given back."""


@final
class StepTrace:
    """The blocks in use, and the events of the newest batches in a bounded memory. Safe to call from any thread."""

    def __init__(self) -> None:
        self._live: dict[int, _Taken] = {}
        self._batches: deque[list[_Taken | tuple[_Taken]]] = deque(maxlen=BATCHES)
        self._open: list[_Taken | tuple[_Taken]] = []
        self._forward: int | None = None
        self.wanted: Event | None = None
        """The newest block that the device did not have."""

    def took(self, address: int, nbytes: int, shape: tuple[int, ...]) -> None:
        """A block was handed out."""
        self._live[address] = event = (address, nbytes, shape)
        if len(self._open) < MOST_EVENTS:
            self._open.append(event)

    def freed(self, address: int) -> None:
        """A block was given back."""
        event = self._live.pop(address, None)
        if event is not None and len(self._open) < MOST_EVENTS:
            self._open.append((event,))

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
            live=tuple(map(_event, self._live.values())),
            batches=tuple(tuple(map(_event, batch)) for batch in self._batches),
            before=tuple(map(_event, self._open[:at])),
            events=tuple(map(_event, self._open[at:])),
            wanted=self.wanted,
        )


def _event(noted: _Taken | tuple[_Taken]) -> Event:
    """An event as its readers know it; what was noted is no more than the batch has time for."""
    taken = noted[0] if len(noted) == 1 else noted
    block, nbytes, shape = taken
    return Event(block, nbytes, tuple(shape), len(noted) == 1)
