"""The recorder: events in, one record a batch, which `memguard.rule_runner` judges. No torch.

Everything memguard does inside a training step passes through here or through `Recorder.part`, and here alone its
failures end: a part that fails is logged once with its traceback and switched off; the run goes on.

Long because all events of the loop share one state: the open batch, the stages around it, the marks that wait.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, final

from memguard import phases
from memguard.allowing import allowed_lately, lately
from memguard.backends.interface import Backend
from memguard.clocks import now, perf_counter
from memguard.forks import process
from memguard.recording.writer import RecordingWriter
from memguard.records.batch_ends import BatchEnd, RecordMaker
from memguard.records.claims import Claim
from memguard.records.facts import Fact
from memguard.records.fast_path_state import FastPathState
from memguard.records.findings import Finding
from memguard.records.phases import PhaseLedger
from memguard.records.stats import BatchRecord, MemoryStats, Run, SlowStats, Stage
from memguard.records.summary import Summary
from memguard.rule_runner import RuleRunner
from memguard.rules.interface import Rule
from memguard.sinks.interface import Sink

HISTORY = 4096
JUDGED_AT_ONCE = 64
"""First batches, each worked out and judged by the rules as it ends."""
BLOCK, LARGEST_BLOCK = 64, 256
"""Later ones are worked out so many at a time, twice as many after each full block: code that runs in a row costs a
third of code that runs now and then."""
BLOCK_SECONDS = 0.5
"""No batch waits longer than until the first one to end after this time."""
RSS_SECONDS, RSS_LATER_SECONDS, RSS_FIRST = 0.02, 0.25, 512
"""Shorter batches share a reading of the process's resident memory, after the first readings longer ones too: between
real steps, with cold caches, this system call takes 30 us, an eighth of what a record costs. The first batches have
each their own: what the first one allocates once is no growth of those that follow."""
_make = tuple.__new__  # the constructor of a NamedTuple is one more call, in each batch
_DESCRIBED = ("device", "device_name", "device_total_bytes", "rank", "world_size")


def _no_slow_stats() -> SlowStats:
    return SlowStats()


def _no_rss() -> int | None:
    return None


@final
class Recorder:
    """Turns the events of a training loop into records, findings and a recording.

    The methods are the events of the loop drawn in `memguard.records.stats`; none of them raises for a fault of
    memguard's.

    Args:
        backend: Where the numbers come from.
        run: What is known of the run; shared with the detectors.
        logdir: Where the recording on disk goes; None records in memory only.
        detectors: The rules to judge by.
        sinks: Where records and findings go.
        slow: The newest reading of the slow lane.
        rss: The process's resident memory in bytes, cheap enough for every batch.
        silenced: Codes of rules and acts whose findings are dropped.
        clock: Seconds since 1970; tests bring their own.
    """

    def __init__(
        self,
        backend: Backend,
        run: Run,
        *,
        logdir: Path | None = None,
        detectors: Sequence[Rule] = (),
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
        self._judging = RuleRunner(
            run, detectors=detectors, sinks=sinks, silenced=silenced, switched_off=self._switched_off
        )
        self._number_of = self._judging.shape_table.number_of
        self._rss_time = self._rss_next = float("-inf")
        self._rss_seconds, self._rss_readings = RSS_SECONDS, 0
        self._rss_bytes: int | None = None
        self._judged_at_once, self._block = JUDGED_AT_ONCE, BLOCK
        self._slow, self._rss, self._clock = slow, rss, clock
        self.phases = PhaseLedger(
            cut=self._cut,
            read=backend.read,
            batch=self._number,
            is_open=self._has_batch,
            rss=rss,
            write=self._judging.phase,
            failed=functools.partial(self.failed, "phases"),
        )
        """Parts of the loop that the program names (`memguard.phase`)."""
        self._judging.phase_at, self._judging.summary.phases = self.phases.name_at, self.phases.totals
        self._pid = process.pid
        self.row = FastPathState(clock, backend.mark)
        """Batches that are taken the short way; whoever takes them asks `begin_row` first."""
        self._open = self._is_in_batch = False
        self._blind = False
        self._stages: list[tuple[Stage, int | None]] = []
        self.long_stage = Stage.OTHER
        """What the loop is doing, as far as it was told here."""
        self._has_edges = True
        self._index: int | None = None
        self._shapes: int | None = None
        self._maker = RecordMaker()
        self._judged_time = self._judge_next = 0.0
        self._began = 0.0
        self.spent = 0.0
        """Seconds that memguard spent in the loop so far; who does so outside of the events below adds to it."""
        self.start_up_seconds = 0.0
        """What memguard took before the loop; who makes and opens this recorder measures it."""
        self._seconds_of_end, self._timed = 0.0, 0
        self._one = threading.Lock()

    @property
    def stage(self) -> Stage:
        """What the loop is doing."""
        return self.row.stage if self.row.is_open else self.long_stage

    @property
    def batch(self) -> int:
        """The number that the open (or next) record gets."""
        return self.row.batch

    @property
    def batch_is_open(self) -> bool:
        """Whether a batch has begun and not ended."""
        return self._is_in_batch or self.row.is_open

    @property
    def optimizer_steps(self) -> int:
        """Optimizer steps so far; who hears of one counts it here."""
        return self.row.optimizer_steps

    @optimizer_steps.setter
    def optimizer_steps(self, steps: int) -> None:
        self.row.optimizer_steps = steps

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
        return self._judging.arbiter.findings

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
        shapes = self._shapes if self._is_in_batch else self.row.shapes if self.row.is_open else None
        return self._judging.shape_table.texts[shapes] if shapes is not None else None

    def add_sink(self, sink: Sink) -> None:
        """One more place where records and findings go; before the run begins."""
        self._judging.sinks.append(sink)

    # The life of a run

    def open(self, session: dict[str, Any]) -> None:
        """The run begins: the backend is put in place and the recording created."""
        if self._open:
            return
        self._began = perf_counter()
        try:
            self._backend.install()
            self._maker.last = self._backend.boundary()
        except Exception as error:
            if type(error).__name__ == "OutOfMemoryError":  # what exists already does not fit the virtual device
                self._backend.remove()
                raise
            self.failed("backend", error)
        self._open = True
        phases.listen(self.phases)
        self._maker.last_time = self._clock()
        self._learn_device()
        if self._logdir is not None:
            described = {name: getattr(self.run, name) for name in _DESCRIBED}
            self.row.batch = self._judging.begin_recording(self._logdir, {**session, **described})

    def close(self, reason: str = "finished") -> Summary:
        """The run is over: detectors conclude, sinks and recording close. A second call only returns the summary."""
        if not self._open or process.pid != self._pid:
            phases.ignore(self.phases)  # which an interrupt may have stopped in the first call
            return self.summary
        with contextlib.ExitStack() as last:  # from the bottom up; an interrupt stops none of them
            last.callback(self._remove_backend)
            last.callback(self._judging.close)
            last.callback(self._conclude, reason)
            last.callback(phases.ignore, self.phases)
            self.phases.close()
            if self.batch_is_open:
                self.batch_end()
        return self.summary

    def _conclude(self, reason: str) -> None:
        self._open = False
        self.judge()
        start_up = self.start_up_seconds
        self._judging.conclude(reason, batches=self.batch, overhead=self.overhead(), start_up_seconds=start_up)

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
        self.row.force_slow_path()
        self._stages.append((stage, epoch))
        self.long_stage = stage
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
        self.row.force_slow_path()
        if stage is Stage.CHECKPOINT:
            self.long_stage, self._is_in_batch = stage, True
            self.batch_end(at_once=True)
        began = perf_counter()
        if stage is not Stage.CHECKPOINT:
            self._edge()
        self.judge()
        while self._stages.pop()[0] is not stage:
            pass
        self.long_stage = self._stages[-1][0] if self._stages else Stage.OTHER
        self.spent += perf_counter() - began

    def epoch(self, epoch: int | None) -> None:
        """The current stage goes into another epoch."""
        self.judge()
        self.row.force_slow_path()
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
        self._is_in_batch, self._index = True, index
        self._shapes = self._number_of(shapes) if shapes is not None else None
        if self.phases.used:
            self.phases.batch_started()

    def shapes_once(self, describe: Callable[[Any], Any], inputs: Any) -> None:
        """The input shapes of the open batch, where they come later than its start; the first with a tensor count.

        Args:
            describe: Makes of the inputs what `batch_start` takes; not called where their shapes are known.
            inputs: What the batch, or its first forward, brings in.
        """
        if self._is_in_batch and self._shapes is None and (described := describe(inputs)):
            self._shapes = self._number_of(described)

    def batch_end(self, *, at_once: bool = False) -> None:
        """The open batch ends; its record is made and judged, now or with those of the next batches.

        Args:
            at_once: Whether somebody is about to look at the record.
        """
        if not self.batch_is_open or not self._open or process.pid != self._pid:
            return
        began, stage = perf_counter(), self.stage
        if self.row.is_open:
            self.open_alike()
        self._is_in_batch = False
        arbiter = self._judging.arbiter
        allowances = arbiter.allowed
        if lately or allowances:
            allowances = allowed_lately()
            if allowances != arbiter.allowed:
                self.judge()
                arbiter.allowed = allowances
        if self._blind:
            return
        try:
            look = self._marking.mark()
            if self.phases.busy:
                look = self._with_phases(look)
        except Exception as error:
            self.failed("backend", error)
            return
        marks = self.row.marks
        marks.append(mark := self._new_mark(stage, look))
        self._timed += 1
        seconds = perf_counter() - began
        if self._seconds_of_end:  # another process may have had the processor meanwhile
            seconds = min(seconds, 1.1 * self._seconds_of_end)
        self._seconds_of_end = seconds
        if self._judged_at_once:
            self._judged_at_once -= 1
            at_once = True
        if at_once or allowances or len(marks) >= self._block or mark.time >= self._judge_next:
            self.judge()
        self.spent += perf_counter() - began

    # Batches that are like those before them; `FastPathState` has what takes them over

    def begin_row(self) -> None:
        """Some may follow: says what their marks have in common, and until when their ends may be noted in the row."""
        row = self.row
        row.room = self._block - 1
        row.epoch, row.host_rss_bytes = self._newest_epoch(), self._rss_bytes
        row.since, row.until = max(self._judged_time, self._rss_time), min(self._judge_next, self._rss_next)
        if self._judging.arbiter.allowed or self._blind or not self._open:
            row.force_slow_path()

    def hand_over(self) -> None:
        """The open batch goes on in the row."""
        row = self.row
        row.stage, row.shapes = self.long_stage, self._shapes
        self._is_in_batch, row.is_open = False, True

    def open_alike(self) -> None:
        """One that the row has begun goes on as any other."""
        self.row.is_open = False
        self._is_in_batch, self._index, self._shapes = True, None, self.row.shapes

    def end_alike(self) -> bool:
        """One that the row has begun ends out of its bounds. Whether records were made and judged."""
        self.batch_end()
        self.begin_row()
        return not self.row.marks

    @contextlib.contextmanager
    def without_edges(self) -> Iterator[None]:
        """Stages begin and end that began or ended on the fast path before: what lay between is in its batches."""
        self._has_edges = False
        try:
            yield
        finally:
            self._has_edges = True

    def number_of(self, shapes: Any) -> int | None:
        """The number of input shapes, as `batch_start` takes them, in the run's table."""
        return self._number_of(shapes)

    def learn(self, facts: Iterable[Fact]) -> None:
        """Facts that probes saw; the detectors judge them."""
        if not self._active():
            return
        self.judge()
        self._judging.learn(facts)

    def add(self, claim: Claim) -> None:
        """A rule's claim or an act of a guard."""
        self._judging.add(claim)

    def out_of_memory(self, told: dict[str, Any]) -> None:
        """A post-mortem as JSON data; the one that the program did not catch is the run's."""
        self.judge()
        self._judging.out_of_memory(told)

    def line(self, kind: str, data: dict[str, Any]) -> None:
        """Writes a rare thing into the recording."""
        self._judging.line(kind, data)

    # Failures of ours

    def part(self, name: str) -> AbstractContextManager[None]:
        """A context in which an exception of ours switches the named part off (`memguard.component_health`)."""
        return self._judging.parts.part(name)

    def is_off(self, name: str) -> bool:
        """Whether a part failed and was switched off."""
        return self._judging.parts.is_off(name)

    def failed(self, name: str, error: BaseException) -> None:
        """Logs a part's failure with its traceback, once, and switches it off."""
        self._judging.parts.failed(name, error)

    def _switched_off(self, name: str) -> None:
        if name == "backend":
            self._blind = True
            self.row.force_slow_path()

    # Records

    def _active(self) -> bool:
        return self._open and process.pid == self._pid

    def _edge(self) -> None:
        """A boundary between stages: a spike in the gap gets a record of its own, else nothing is written."""
        self.judge()
        if self._blind or not self._has_edges:
            return
        with self.part("backend"):
            maker = self._maker
            before, now = maker.last, self._backend.boundary()
            if self.phases.busy:
                now = self.phases.marked(now, self.row.batch)
            peak = now.allocated_peak_bytes
            if peak is not None and peak > max(before.allocated_bytes or 0, now.allocated_bytes or 0):
                self.run.slow = self._slow()
                self._make([self._new_mark(Stage.OTHER, now)], lambda _: now)
            maker.last, maker.last_time = now, self._clock()

    def _number(self) -> int:
        return self.row.batch

    def _has_batch(self) -> bool:
        return self.batch_is_open

    def _cut(self) -> MemoryStats:
        """A boundary within the open batch, which is not taken as one of the row."""
        self.row.force_slow_path()
        self.row.halt()
        self.judge()
        return self._backend.cut()

    def _with_phases(self, look: object) -> MemoryStats:
        """What a mark saw, with what phases saw of its batch."""
        self.judge()  # statistics are told in the order of the marks
        return self.phases.marked(self._marking.stats(look), self.row.batch)

    def _new_mark(self, stage: Stage, look: object) -> BatchEnd:
        now, batch, index, shapes = self._clock(), self.row.batch, self._index, self._shapes
        if self._rss_readings < JUDGED_AT_ONCE or not self._rss_time <= now < self._rss_next:
            self._rss_time, self._rss_bytes = now, self._rss()
            self._rss_readings += 1
            if self._rss_readings == RSS_FIRST:
                self._rss_seconds = RSS_LATER_SECONDS
            self._rss_next = now + self._rss_seconds
        self.row.batch, self._index, self._shapes = batch + 1, None, None
        epoch = self._newest_epoch()
        return _make(BatchEnd, (batch, stage, epoch, index, self.optimizer_steps, now, shapes, self._rss_bytes, look))

    def _newest_epoch(self) -> int | None:
        return self._stages[-1][1] if self._stages else None

    def judge(self) -> None:
        """Works out the batches that wait for it, writes them down and judges them.

        One asks at a time: a second thread, or a signal that comes in between, finds what was worked out before.
        """
        if not self.row.marks or process.pid != self._pid:
            return
        mine = False
        try:
            if mine := self._one.acquire(blocking=False):
                self._work_out()
        finally:
            if mine:
                self._one.release()

    def _work_out(self) -> None:
        marks = self.row.marks[:]
        del self.row.marks[: len(marks)]  # one that ends meanwhile stays
        self.spent += (len(marks) - self._timed) * self._seconds_of_end  # those that are timed take longer, if anything
        self._timed = 0
        if len(marks) >= self._block:
            self._block = min(2 * self._block, LARGEST_BLOCK)
        self._judged_time = marks[-1].time
        self._judge_next = self._judged_time + BLOCK_SECONDS
        if self.run.device_total_bytes is None:
            self._learn_device()
        self.run.slow = self._slow()
        self._make(marks, self._marking.stats)
        if not self.row.marks:  # else their looks are those of another one
            with self.part("backend"):
                self._marking = self._backend.settled()
                self.row.look = self._marking.mark

    def _make(self, marks: list[BatchEnd], stats: Callable[[object], MemoryStats]) -> None:
        """Records of some marks, written down and judged."""
        series: list[list[BatchRecord]] = []
        try:
            self._maker.make(series, marks, stats, self.run.slow)
        except Exception as error:
            self.failed("backend", error)
        if series:
            self._records.extend(records := [record for alike in series for record in alike])
            self._judging.records(records, series)

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
