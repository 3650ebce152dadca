"""State of the fast path: settled batches of which only the end is taken, to be worked out later."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import final

from memguard.clocks import now
from memguard.forks import process
from memguard.records.batch_ends import BatchEnd
from memguard.records.stats import Stage

STEPPING = -1
"""Awaited is the end of a step that no batch of the row waits for: a forward inside of it is out of the ordinary."""
_FAR = float("inf")


def _nothing() -> None:
    return None


@final
class FastPathState:
    """What the hooks of a loop's ordinary batches and the recorder share.

    Between real steps memguard's code and data are cold: each function, and each object that a batch passes through,
    costs a fraction of a microsecond. So the hooks (`memguard.integrations.loop.fast_path_hooks`) find all they need
    here.

    Attributes:
        batch: The number that the open (or next) record gets.
        optimizer_steps: Optimizer steps of the run so far.
        left: Batches that may still be taken: 0 where these are used up, less where something happened.
        told: Whether probes are told of what happens in those; else nobody looks at them.
        begun: Batches that were taken and not told of yet.
        model: The identity of the model whose call begins each of them.
        optimizer: That of the optimizer whose step ends each of them.
        awaited: The same while a batch of the row is open; `STEPPING` inside any step while none is; else 0.
        thread, pid: Where the batches are taken.
        shape, dtype: Those of the last input, where it was a single tensor.
        shapes: The number of the last input shapes in the run's table.
        stage, epoch, host_rss_bytes: What is the same in the marks of the row.
        marks: The ends of all batches that wait to be worked out, of the row and others.
        clock: Seconds since 1970.
        look: The backend's `mark`.
        room: So many marks may wait; a batch that would be one more goes the long way, where they are worked out.
        since, until: One that ends before or after goes it too, for clocks and memory are looked at there.
    """

    __slots__ = (
        *("batch", "optimizer_steps", "left", "told", "begun", "model", "optimizer", "awaited", "thread", "pid"),
        *("shape", "dtype", "shapes", "stage", "epoch", "host_rss_bytes"),
        *("marks", "clock", "look", "room", "since", "until"),
    )

    def __init__(self, clock: Callable[[], float] = now, look: Callable[[], object] = _nothing) -> None:
        self.batch = self.optimizer_steps = 0
        self.left = -1
        self.begun = self.model = self.optimizer = self.awaited = 0
        self.told = False
        self.thread, self.pid = get_ident(), process.pid
        self.shape: object = None
        self.dtype: object = None
        self.shapes: int | None = None
        self.stage = Stage.TRAIN
        self.epoch: int | None = None
        self.host_rss_bytes: int | None = None
        self.marks: list[BatchEnd] = []
        self.clock = clock
        self.look = look
        self.room = 0
        self.since, self.until = _FAR, -_FAR

    @property
    def is_open(self) -> bool:
        """Whether a batch of the row is open."""
        return self.awaited > 0

    def halt(self) -> None:
        """Something happened, in any thread: no further batch is taken."""
        self.left = -1

    def force_slow_path(self) -> None:
        """The next batch to end goes the long way."""
        self.until = -_FAR
