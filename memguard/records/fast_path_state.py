"""State of the fast path: batches of a settled loop, of which only the end is noted, to be worked out later."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any, final

from memguard.allowing import lately
from memguard.clocks import now
from memguard.forks import process
from memguard.records.batch_ends import BatchEnd
from memguard.records.stats import Stage

_FAR = float("inf")
_make = tuple.__new__  # the constructor of a NamedTuple is one more call


def _nothing() -> None:
    return None


@final
class LoopEvent:
    """One event of a loop that repeats itself, and what follows from it.

    Attributes:
        called, answered: The identity of the model whose forward begins or ends; else 0.
        stepping, stepped: That of the optimizer whose step begins or ends; else 0.
        training, grad: Of a forward's begin: whether the model is in training mode, and gradients are enabled.
        ends, begins: Whether a batch ends here, and whether one begins (after that).
        stage: The stage of the one that begins.
        shape, dtype: Those of the last input of a batch that begins here, where it was a single tensor.
        shapes: The number of its shapes in the run's table.
        symbol: The event and what follows from it, to be compared with another one.
        before: What was known of the loop before this event.
        next: The event that follows.
    """

    __slots__ = (
        *("called", "answered", "stepping", "stepped", "training", "grad", "ends", "begins", "stage"),
        *("shape", "dtype", "shapes", "symbol", "before", "next"),
    )

    def __init__(self) -> None:
        self.called = self.answered = self.stepping = self.stepped = 0
        self.training = self.grad = self.ends = self.begins = False
        self.stage = Stage.TRAIN
        self.shape: object = None
        self.dtype: object = None
        self.shapes: int | None = None
        self.symbol: Any = None
        self.before: object = None
        self.next = self


@final
class FastPathState:
    """What the hooks of a loop's ordinary batches and the recorder share.

    Between real steps memguard's code and data are cold: each function, and each object that a batch passes through,
    costs a fraction of a microsecond. So the hooks (`memguard.integrations.loop.fast_path_hooks`) find all they need
    here.

    Attributes:
        batch: The number that the open (or next) record gets.
        optimizer_steps: Optimizer steps of the run so far.
        expected: The event that is to come on the fast path; None off it.
        left: Batches that may still begin: 0 where these are used up, less where something happened.
        told: Whether probes get the next batch's events; else it is not sampled.
        begun: Batches that began here and were not counted elsewhere yet.
        is_open: Whether a batch of the fast path is open.
        thread, pid: Where the loop runs.
        stage, shapes: Of the open batch; shapes by their number in the run's table.
        epoch, host_rss_bytes: What is the same in the marks of the row.
        marks: The ends of all batches that wait to be worked out, of the fast path and others.
        clock: Seconds since 1970.
        look: The backend's `mark`.
        room: So many marks may wait; a batch that would be one more goes the long way, where they are worked out.
        since, until: One that ends before or after goes it too, for clocks and memory are looked at there.
    """

    __slots__ = (
        *("batch", "optimizer_steps", "expected", "left", "told", "begun", "is_open", "thread", "pid"),
        *("stage", "shapes", "epoch", "host_rss_bytes", "marks", "clock", "look", "room", "since", "until"),
    )

    def __init__(self, clock: Callable[[], float] = now, look: Callable[[], object] = _nothing) -> None:
        self.batch = self.optimizer_steps = self.begun = 0
        self.expected: LoopEvent | None = None
        self.left = -1
        self.is_open = self.told = False
        self.thread, self.pid = get_ident(), process.pid
        self.stage = Stage.TRAIN
        self.shapes: int | None = None
        self.epoch: int | None = None
        self.host_rss_bytes: int | None = None
        self.marks: list[BatchEnd] = []
        self.clock = clock
        self.look = look
        self.room = 0
        self.since, self.until = _FAR, -_FAR

    def end(self) -> bool:
        """The open batch is over: notes its end. False where the recorder has to: the batch is still open then."""
        time, marks = self.clock(), self.marks
        if len(marks) >= self.room or not self.since <= time < self.until or lately:
            return False
        try:
            look = self.look()
        except Exception:
            return False  # the recorder meets it again, and tells of it
        batch, steps, rss = self.batch, self.optimizer_steps, self.host_rss_bytes
        marks.append(_make(BatchEnd, (batch, self.stage, self.epoch, None, steps, time, self.shapes, rss, look)))
        self.batch, self.is_open = batch + 1, False
        return True

    def halt(self) -> None:
        """Something happened, in any thread: no further batch begins here."""
        self.left = -1

    def force_slow_path(self) -> None:
        """The next batch to end goes the long way."""
        self.until = -_FAR
