"""The heart: events in, one record a batch, which `memguard.judging` judges and tells. No torch.

Everything memguard does inside a training step passes through here or through `Recorder.part`, and here alone its
failures end: a part that fails is logged once with its traceback and switched off; the run goes on.

Long because all events of the loop share one state: the open batch, the stages around it, the marks that wait.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, final

from memguard.allowing import allowed_lately, lately
from memguard.backends.interface import Backend
from memguard.clocks import now, perf_counter
from memguard.detectors.interface import Detector
from memguard.facts import Fact
from memguard.findings import Finding
from memguard.forks import process
from memguard.judging import Judging
from memguard.marks import Mark, make_record
from memguard.recording_writer import RecordingWriter
from memguard.sinks.interface import Sink
from memguard.stats import BatchRecord, MemoryStats, Run, SlowStats, Stage
from memguard.summary import Summary

HISTORY = 4096
JUDGED_AT_ONCE = 64
"""First batches, each worked out and judged by the rules as it ends."""
BLOCK = 64
"""Later ones are worked out so many at a time: code that runs in a row costs a third of code that runs now and then."""
BLOCK_SECONDS = 0.5
"""No batch waits longer than until the first one to end after this time."""
RSS_SECONDS, RSS_LATER_SECONDS, RSS_FIRST = 0.01, 0.25, 512
"""Shorter batches share a reading of the process's resident memory, after the first readings longer ones too: between
real steps, with cold caches, this system call takes 30 us, an eighth of what a record costs."""
_make = tuple.__new__  # the constructor of a NamedTuple is one more call, in each batch
_DESCRIBED = ("device", "device_name", "device_total_bytes", "rank", "world_size")


def _no_slow_stats() -> SlowStats:
    return SlowStats()


def _no_rss() -> int | None:
    return None


@final
class Recorder:
    """Turns the events of a training loop into records, findings and a recording.

    The methods are the events of the loop drawn in `memguard.stats`; none of them raises for a fault of memguard's.

    Args:
        backend: Where the numbers come from.
        run: What is known of the run; shared with the detectors.
        logdir: Where the recording on disk goes; None records in memory only.
        detectors: The rules to judge by.
        sinks: Where records and findings go.
        slow: The newest reading of the slow lane.
        rss: The process's resident memory in bytes, cheap enough for every batch.
        silenced: Rule codes and names whose findings are dropped.
        clock: Seconds since 1970; tests bring their own.
    """

    def __init__(
        self,
        backend: Backend,
        run: Run,
        *,
        logdir: Path | None = None,
        detectors: Sequence[Detector] = (),
        sinks: Sequence[Sink] = (),
        slow: Callable[[], SlowStats] = _no_slow_stats,
        rss: Callable[[], int | None] = _no_rss,
        silenced: Iterable[str] = (),
        clock: Callable[[], float] = now,
    ) -> None:
        self.run = run
        self._records: deque[BatchRecord] = deque(maxlen=HISTORY)
        self._backend = self._marking = backend
        self._logdir = logdir
        self._judging = Judging(
            run, detectors=detectors, sinks=sinks, silenced=silenced, switched_off=self._switched_off
        )
        self._number_of = self._judging.shape_table.number_of
        self._marks: list[Mark] = []
        self._rss_time = self._rss_next = float("-inf")
        self._rss_seconds, self._rss_readings = RSS_SECONDS, 0
        self._rss_bytes: int | None = None
        self._judged_at_once = JUDGED_AT_ONCE
        self._slow, self._rss, self._clock = slow, rss, clock
        self._pid = process.pid
        self._open = False
        self._blind = False
        self._stages: list[tuple[Stage, int | None]] = []
        self.batch = 0
        """The number that the open (or next) record gets."""
        self.stage = Stage.OTHER
        """What the loop is doing."""
        self.optimizer_steps = 0
        """Optimizer steps so far; who hears of one counts it here."""
        self._index: int | None = None
        self._shapes: int | None = None
        self._last = MemoryStats()
        self._last_time = self._judged_time = self._judge_next = 0.0
        self._began = 0.0
        self.spent = 0.0
        """Seconds that memguard spent in the loop so far; who does so outside of the events below adds to it."""
        self.batch_is_open = False
        """Whether a batch has begun and not ended."""

    @property
    def records(self) -> deque[BatchRecord]:
        """The newest records, oldest first."""
        self.judge()
        return self._records

    @property
    def newest(self) -> BatchRecord | None:
        """The newest record; None before the first."""
        self.judge()
        return self._records[-1] if self._records else None

    @property
    def findings(self) -> dict[tuple[str, str | None, int | None, str | None], Finding]:
        """All findings so far, by their cause."""
        self.judge()
        return self._judging.causes.findings

    @property
    def summary(self) -> Summary:
        """What the run comes to so far."""
        self.judge()
        return self._judging.summary

    @property
    def recording(self) -> RecordingWriter | None:
        """The recording on disk, as long as there is one."""
        return self._judging.recording

    @property
    def listeners(self) -> list[Callable[[Sequence[BatchRecord]], object]]:
        """Called with the records as they are made, one or some at a time, before the rules are."""
        return self._judging.listeners

    @property
    def shape_texts(self) -> Sequence[list[Any]]:
        """The run's table of input shapes: a record's `shapes` is a position in it."""
        return self._judging.shape_table.texts

    @property
    def open_shapes(self) -> list[Any] | None:
        """Input shapes of the open batch, where they are known."""
        return (
            self._judging.shape_table.texts[self._shapes] if self.batch_is_open and self._shapes is not None else None
        )

    # The life of a run

    def open(self, session: dict[str, Any]) -> None:
        """The run begins: the backend is put in place and the recording created."""
        if self._open:
            return
        self._began = perf_counter()
        try:
            self._backend.install()
            self._last = self._backend.boundary()
        except Exception as error:
            if type(error).__name__ == "OutOfMemoryError":  # what exists already does not fit the virtual device
                self._backend.remove()
                raise
            self.failed("backend", error)
        self._open = True
        self._last_time = self._clock()
        self._learn_device()
        if self._logdir is not None:
            described = {name: getattr(self.run, name) for name in _DESCRIBED}
            self.batch = self._judging.begin_recording(self._logdir, {**session, **described})

    def close(self, reason: str = "finished") -> Summary:
        """The run is over: detectors conclude, sinks and recording close. A second call only returns the summary."""
        if not self._open or process.pid != self._pid:
            return self.summary
        with contextlib.ExitStack() as last:  # from the bottom up; an interrupt stops none of them
            last.callback(self._remove_backend)
            last.callback(self._judging.close)
            last.callback(self._conclude, reason)
            if self.batch_is_open:
                self.batch_end()
        return self.summary

    def _conclude(self, reason: str) -> None:
        self._open = False
        self.judge()
        self._judging.conclude(reason, batches=self.batch, overhead=self.overhead())

    def _remove_backend(self) -> None:
        try:
            self._backend.remove()
        except Exception as error:
            self.failed("backend", error)

    def overhead(self) -> dict[str, float]:
        """Seconds that memguard spent in the loop so far, and their share of the wall time."""
        wall = perf_counter() - self._began
        return {"seconds": self.spent, "share": self.spent / wall if wall > 0 else 0.0}

    # Events

    def stage_start(self, stage: Stage, *, epoch: int | None = None, batches: int | None = None) -> None:
        """A stage begins; `batches` is the length of one pass over its loaders, where known."""
        if not self._active():
            return
        began = perf_counter()
        self._edge()
        self.judge()
        self._stages.append((stage, epoch))
        self.stage = stage
        if batches is not None:
            self.run.batches_per_epoch[stage] = batches
        if epoch is not None and stage is Stage.TRAIN:
            self.run.epoch = epoch
        self.spent += perf_counter() - began

    def stage_end(self, stage: Stage) -> None:
        """A stage ends; a checkpoint becomes a record of its own."""
        if not self._active() or not any(open_stage is stage for open_stage, _ in self._stages):
            return
        if self.batch_is_open:
            self.batch_end()
        if stage is Stage.CHECKPOINT:
            self.stage, self.batch_is_open = stage, True
            self.batch_end(at_once=True)
        began = perf_counter()
        if stage is not Stage.CHECKPOINT:
            self._edge()
        self.judge()
        while self._stages.pop()[0] is not stage:
            pass
        self.stage = self._stages[-1][0] if self._stages else Stage.OTHER
        self.spent += perf_counter() - began

    def epoch(self, epoch: int | None) -> None:
        """The current stage goes into another epoch."""
        self.judge()
        if self._stages:
            self._stages[-1] = (self._stages[-1][0], epoch)
            if self._stages[-1][0] is Stage.TRAIN:
                self.run.epoch = epoch

    def batch_start(self, index: int | None = None, shapes: Any = None) -> None:
        """A batch of the current stage begins.

        Args:
            index: Its number within stage and epoch.
            shapes: Its input shapes as nested tuples (hashable), like ``(("x", (32, 784), "float32"),)``.
        """
        if not self._open or process.pid != self._pid:
            return
        if self.batch_is_open:
            self.batch_end()
        self.batch_is_open, self._index = True, index
        self._shapes = self._number_of(shapes) if shapes is not None else None

    def shapes_once(self, describe: Callable[[Any], Any], inputs: Any) -> None:
        """The input shapes of the open batch, where they come later than its start; the first ones count.

        Args:
            describe: Makes of the inputs what `batch_start` takes; not called where their shapes are known.
            inputs: What the batch, or its first forward, brings in.
        """
        if self.batch_is_open and self._shapes is None:
            self._shapes = self._number_of(describe(inputs))

    def batch_end(self, *, at_once: bool = False) -> None:
        """The open batch ends; its record is made and judged, now or with those of the next batches.

        Args:
            at_once: Whether somebody is about to look at the record.
        """
        if not self.batch_is_open or not self._open or process.pid != self._pid:
            return
        began = perf_counter()
        self.batch_is_open = False
        causes = self._judging.causes
        allowances = causes.allowed
        if lately or allowances:
            allowances = allowed_lately()
            if allowances != causes.allowed:
                self.judge()
                causes.allowed = allowances
        if self._blind:
            return
        try:
            look = self._marking.mark()
        except Exception as error:
            self.failed("backend", error)
            return
        marks = self._marks
        marks.append(mark := self._new_mark(self.stage, look))
        if self._judged_at_once:
            self._judged_at_once -= 1
            at_once = True
        if at_once or allowances or len(marks) >= BLOCK or mark.time >= self._judge_next:
            self.judge()
        self.spent += perf_counter() - began

    def begin_alike(self, shapes: int | None) -> None:
        """A batch begins that is like those before it, none being open: as `batch_start`, in fewer steps.

        Args:
            shapes: The number of its input shapes (`number_of`).
        """
        self.batch_is_open, self._index, self._shapes = True, None, shapes

    def end_alike(self) -> bool:
        """It ends: as `batch_end`, in fewer steps. Whether records were made and judged."""
        began, now = perf_counter(), self._clock()
        if (
            lately
            or self._judging.causes.allowed
            or not (self._open and self.batch_is_open)
            or self._blind
            or not self._judged_time <= now < self._judge_next
            or not self._rss_time <= now < self._rss_next
        ):
            self.batch_end()
            return not self._marks
        self.batch_is_open = False
        try:
            look = self._marking.mark()
        except Exception as error:
            self.failed("backend", error)
            return False
        batch, marks, shapes = self.batch, self._marks, self._shapes
        self.batch, self._shapes = batch + 1, None
        epoch = self._stages[-1][1] if self._stages else None
        mark = (batch, self.stage, epoch, None, self.optimizer_steps, now, shapes, self._rss_bytes, look)
        marks.append(_make(Mark, mark))
        judges = len(marks) >= BLOCK
        if judges:
            self.judge()
        self.spent += perf_counter() - began
        return judges

    def number_of(self, shapes: Any) -> int | None:
        """The number of input shapes, as `batch_start` takes them, in the run's table."""
        return self._number_of(shapes)

    def learn(self, facts: Iterable[Fact]) -> None:
        """Facts that probes saw; the detectors judge them."""
        if not self._active():
            return
        self.judge()
        self._judging.learn(facts)

    def add(self, finding: Finding) -> None:
        """A finding of a detector or an act of a guard; one of a cause already told counts that up."""
        self._judging.add(finding)

    def out_of_memory(self, told: dict[str, Any]) -> None:
        """A post-mortem as JSON data; the one that the program did not catch is the run's."""
        self.judge()
        self._judging.out_of_memory(told)

    def line(self, kind: str, data: dict[str, Any]) -> None:
        """Writes a rare thing into the recording."""
        self._judging.line(kind, data)

    # Failures of ours

    def part(self, name: str) -> AbstractContextManager[None]:
        """A context in which an exception of memguard's own switches the named part off (`memguard.parts`)."""
        return self._judging.parts.part(name)

    def is_off(self, name: str) -> bool:
        """Whether a part failed and was switched off."""
        return self._judging.parts.is_off(name)

    def failed(self, name: str, error: BaseException) -> None:
        """Logs a part's failure with its traceback, once, and switches it off."""
        self._judging.parts.failed(name, error)

    def _switched_off(self, name: str) -> None:
        self._blind = self._blind or name == "backend"

    # Records

    def _active(self) -> bool:
        return self._open and process.pid == self._pid

    def _edge(self) -> None:
        """A boundary between stages: a spike in the gap gets a record of its own, else nothing is written."""
        self.judge()
        if self._blind:
            return
        with self.part("backend"):
            before, now = self._last, self._backend.boundary()
            peak = now.allocated_peak_bytes
            if peak is not None and peak > max(before.allocated_bytes or 0, now.allocated_bytes or 0):
                self.run.slow = self._slow()
                self._tell([self._record_of(self._new_mark(Stage.OTHER, None), now)])
            self._last, self._last_time = now, self._clock()

    def _new_mark(self, stage: Stage, look: object) -> Mark:
        now, batch, index, shapes = self._clock(), self.batch, self._index, self._shapes
        if not self._rss_time <= now < self._rss_next:
            self._rss_time, self._rss_bytes = now, self._rss()
            self._rss_readings += 1
            if self._rss_readings == RSS_FIRST:
                self._rss_seconds = RSS_LATER_SECONDS
            self._rss_next = now + self._rss_seconds
        self.batch, self._index, self._shapes = batch + 1, None, None
        epoch = self._stages[-1][1] if self._stages else None
        return _make(Mark, (batch, stage, epoch, index, self.optimizer_steps, now, shapes, self._rss_bytes, look))

    def judge(self) -> None:
        """Works out the batches that wait for it, writes them down and judges them."""
        marks = self._marks
        if not marks:
            return
        self._marks = []
        self._judged_time = marks[-1].time
        self._judge_next = self._judged_time + BLOCK_SECONDS
        if self.run.device_total_bytes is None:
            self._learn_device()
        self.run.slow = self._slow()
        records: list[BatchRecord] = []
        stats = self._marking.stats
        try:
            for mark in marks:
                now = stats(mark.look)
                records.append(self._record_of(mark, now))
            self._marking = self._backend.settled()
        except Exception as error:
            self.failed("backend", error)
        self._tell(records)

    def _record_of(self, mark: Mark, now: MemoryStats) -> BatchRecord:
        """The record between the last look and this one, which is the last then."""
        before, self._last = self._last, now
        began, self._last_time = self._last_time, mark.time
        return make_record(mark, before, now, seconds=max(mark.time - began, 0.0), slow=self.run.slow)

    def _tell(self, records: list[BatchRecord]) -> None:
        self._records.extend(records)
        self._judging.records(records)

    def _learn_device(self) -> None:
        """Asks the backend who it is; a device that the user initialises late answers late."""
        run, summary = self.run, self._judging.summary
        with self.part("backend"):
            run.device, run.device_name, total = self._backend.device, self._backend.name, self._backend.total_bytes
            summary.device, summary.device_name = run.device, run.device_name
            summary.measures_peaks = self._backend.measures_peaks
            if total is not None:
                run.device_total_bytes = summary.device_total_bytes = total
                run.limit_bytes = self._backend.limit_bytes
                self.line("device", {name: getattr(run, name) for name in _DESCRIBED})
