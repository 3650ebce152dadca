"""Runs the rules over records and facts, and passes the results to arbiter, summary, recording and sinks. No torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, final

from memguard.component_health import RECORDING, ComponentHealth
from memguard.forks import process
from memguard.recording.writer import RecordingWriter
from memguard.records.claims import Claim
from memguard.records.facts import Fact, KeptOutputs, ModelCalled, UnexplainedGrowth
from memguard.records.kept_floor import KeptFloor
from memguard.records.shape_table import ShapeTable
from memguard.records.stats import BatchRecord, Run, Series, Stage, limit_of
from memguard.records.summary import StageSummary, Summary
from memguard.rules.arbiter import Arbiter, attribute
from memguard.rules.finding_text import SO_FAR
from memguard.rules.growth_attribution import GrowthAttribution
from memguard.rules.interface import Rule
from memguard.rules.selection import Subscriptions, part_of
from memguard.sinks.interface import Sink
from memguard.thresholds import EXPLAINED, NEARLY, NOTABLE_SHARE


def _no_phase(batch: int) -> None:
    return None


_Seen = TypeVar("_Seen", BatchRecord, Series)

LEAST_OF_CURVE = 3
"""Batches of training, from which on what stays allocated after them is a curve."""


@final
class RuleRunner:
    """The rules of a run, and everything that is told of it: findings, summary, recording and sinks.

    Args:
        run: What is known of the run; shared with the rules.
        detectors: The rules to judge by.
        sinks: Where records and findings go.
        silenced: Codes of rules and acts whose findings are dropped.
        switched_off: Told the name of each part that failed.
    """

    def __init__(
        self,
        run: Run,
        *,
        detectors: Sequence[Rule],
        sinks: Sequence[Sink],
        silenced: Iterable[str],
        switched_off: Callable[[str], None],
    ) -> None:
        self.summary = Summary(device=run.device, rank=run.rank, world_size=run.world_size)
        self.parts = ComponentHealth(self.summary.notes.append, self._drop)
        self.arbiter = Arbiter(silenced)
        self._following = GrowthAttribution()
        self._candidates: list[KeptOutputs] = []
        self.shape_table = ShapeTable(self._tell_shapes)
        self.recording: RecordingWriter | None = None
        self.listeners: list[Callable[[Sequence[BatchRecord]], object]] = []
        """Called with the records, one or some at a time, before the rules are."""
        self.phase_at: Callable[[int], str | None] = _no_phase
        """Tells the phase in which a batch began, where the program names phases."""
        self.sinks = list(sinks)
        self._run = run
        self._switched_off = switched_off
        self._pid = process.pid
        self._use(detectors)

    def begin_recording(self, logdir: Path, session: dict[str, Any]) -> int:
        """Creates the recording on disk, where that is possible; returns the number of its first batch."""
        try:
            self.recording = RecordingWriter(logdir, session)
        except Exception as error:
            self._recording_failed(error)
            return 0
        self.summary.recording = str(self.recording.path)
        return self.recording.first_batch

    def records(self, records: Sequence[BatchRecord], series: Sequence[Series]) -> None:
        """Writes records down, judges them, and shows them to the sinks."""
        if self.recording is not None:
            try:
                self.recording.write(series)
            except Exception as error:
                self._recording_failed(error)
        run, parts = self._run, self.parts
        for listener in tuple(self.listeners):
            with parts.part("probes"):
                listener(records)
        with parts.part("summary"):
            self.summary.count(series, self.shape_table.texts)
        for alike in series:
            if (peak := alike[0].allocated_peak_bytes) is not None and peak > (run.peak_bytes or 0):
                run.peak_bytes = peak
            self._judge(alike)
        with parts.part("following"):
            self._following.observe(series)
            self._learn(list(self._following.doubled()))
        for sink in tuple(self.sinks):
            try:
                for alike in series:
                    sink.records(alike, run)
            except Exception as error:
                self._sink_failed(sink, error)

    def _judge(self, alike: Series) -> None:
        """Shows records that are alike to the rules: all of them to those alone that hear of the second one.

        Rules that keep no count of batches have heard all there is to know with the first.
        """
        for part, rule in self._hearing.of(alike[0], self._run):
            self._ask(part, rule.observe, alike[0])
        if len(alike) > 1:
            for part, rule in self._hearing.of(alike[1], self._run):
                self._ask(part, rule.observe_alike, alike[1:])

    def _ask(self, part: str, observe: Callable[[_Seen, Run], Iterable[Claim]], seen: _Seen) -> None:
        """What one rule says of what it is shown; its failure ends with it."""
        try:
            self._add_all(observe(seen, self._run))
        except Exception as error:
            self.parts.failed(part, error)

    def learn(self, facts: Iterable[Fact]) -> None:
        """Facts that probes saw; the rules judge them."""
        certain = []
        for fact in facts:
            if isinstance(fact, KeptOutputs) and fact.candidate:
                self._candidates.append(fact)
            elif (learnt := self._following.learn(fact)) is not None:
                certain.append(learnt)
        self._learn(certain)

    def _learn(self, facts: Sequence[Fact]) -> None:
        for fact in facts:
            if isinstance(fact, ModelCalled):
                self._run.calls.setdefault(fact.stage, fact.place)
                place = {"file": fact.place.file, "line": fact.place.line, "function": fact.place.function}
                self.line("called", {"stage": fact.stage.value, "batch": fact.batch, **place})
            for part, learn in self._learners:
                with self.parts.part(part):
                    self._add_all(learn(fact, self._run))

    def _add_all(self, claims: Iterable[Claim]) -> None:
        """What a rule says, as of this process and the epoch that is under way."""
        run = self._run
        for claim in claims:
            self.add(replace(claim, epoch=run.epoch if claim.epoch is None else claim.epoch, rank=run.rank))

    def add(self, claim: Claim) -> None:
        """A rule's claim or an act of a guard; told if the arbiter finds it new, or worse than before."""
        if claim.phase is None and (phase := self.phase_at(claim.batch)) is not None:
            claim = replace(claim, phase=phase)
        told = self.arbiter.add(claim, self._run)
        if told is None:
            return
        self.line("finding", told.to_json())
        for sink in tuple(self.sinks):
            try:
                sink.finding(told)
            except Exception as error:
                self._sink_failed(sink, error)

    def out_of_memory(self, told: dict[str, Any]) -> None:
        """A post-mortem as JSON data; the one that the program did not catch is the run's."""
        self.line("oom", told)
        if told["caught"]:
            return
        self.summary.oom = told
        for sink in tuple(self.sinks):
            try:
                sink.out_of_memory(str(told["text"]), int(told["batch"]))
            except Exception as error:
                self._sink_failed(sink, error)

    def phase(self, told: dict[str, Any]) -> None:
        """A line of a phase, for the recording; its peak also for the sinks."""
        self.line("phase", told)
        if (peak := told.get("peak_bytes")) is None:
            return
        for sink in tuple(self.sinks):
            try:
                sink.phase(told["name"], peak, told["last_batch"])
            except Exception as error:
                self._sink_failed(sink, error)

    def line(self, kind: str, data: dict[str, Any]) -> None:
        """Writes a rare thing into the recording."""
        if self.recording is None or process.pid != self._pid:
            return
        try:
            self.recording.line(kind, data)
        except Exception as error:
            self._recording_failed(error)

    def conclude(self, reason: str, *, batches: int, overhead: dict[str, float], start_up_seconds: float) -> None:
        """The run is over: the rules say their last, and the summary gets its end.

        Args:
            reason: Why it is over, like ``"finished"``.
            batches: How many there were.
            overhead: What memguard spent in the loop: its seconds, and their share of the wall time.
            start_up_seconds: What it took before.
        """
        self._run.ended = True
        self._learn(self._following.newest())
        self._learn(self._likely_holder())
        self._learn(self._unexplained())
        for detector in tuple(self._detectors):
            with self.parts.part(part_of(detector)):
                self._add_all(detector.finish(self._run))
        self.summary.ended, self.summary.is_running = reason, False
        self.summary.overhead_seconds, self.summary.overhead_share = overhead["seconds"], overhead["share"]
        self.summary.start_up_seconds = start_up_seconds
        # What was more at an earlier moment keeps the words of then, but does not grow any more.
        found = self.arbiter.findings.values()
        self.summary.findings = [replace(finding, message=finding.message.replace(SO_FAR, "")) for finding in found]
        told: dict[str, Any] = {"reason": reason, "batches": batches, "overhead": overhead, "notes": self.summary.notes}
        told["start_up_seconds"] = start_up_seconds
        for finding in self.summary.findings:
            self.line("finding", finding.to_json())
        told["final_findings"] = len(self.summary.findings)
        for sink in tuple(self.sinks):
            try:
                sink.conclude(self.summary.findings)
            except Exception as error:
                self._sink_failed(sink, error)
        if self.summary.misses_training:
            told["misses_training"] = True
        self.line("end", told)

    def _growth(self) -> tuple[StageSummary, KeptFloor, int] | None:
        """Training, how its floor rose, and the bytes of that which no claim explains, where that is most of it."""
        stage = self.summary.stages.get(Stage.TRAIN)
        kept = stage.kept if stage is not None else None
        if stage is None or kept is None or stage.batches < LEAST_OF_CURVE:
            return None  # the optimizer's state, where the first step ran out of memory
        unexplained = attribute(self.arbiter.claims, kept.rise_bytes).unexplained
        return None if unexplained < EXPLAINED * kept.rise_bytes else (stage, kept, unexplained)

    def _likely_holder(self) -> list[Fact]:
        """The name that grew by most of what no claim explains, if there is one: one growth has one cause.

        Of names that keep nearly the same the one that goes on to grow, no variable of what it keeps.
        """
        growth, most = self._growth(), max((fact.bytes for fact in self._candidates), default=0)
        near = [fact for fact in self._candidates if fact.bytes >= NEARLY * most]
        largest = max(near, key=lambda fact: (not fact.bounded and fact.bytes_per_batch > 0, fact.bytes), default=None)
        return [largest] if growth and largest and largest.bytes >= EXPLAINED * growth[2] > 0 else []

    def _unexplained(self) -> list[Fact]:
        """What no claim explains of a growth that is a notable part of the device, where that is most of it."""
        growth, limit = self._growth(), limit_of(self._run)
        if growth is None or not limit:
            return []
        stage, kept, unexplained = growth
        if kept.from_bytes is None or kept.to_bytes is None or kept.rise_bytes < NOTABLE_SHARE * limit:
            return []
        return [
            UnexplainedGrowth(
                batch=stage.batches - 1,
                stage=Stage.TRAIN,
                from_bytes=kept.from_bytes,
                to_bytes=kept.to_bytes,
                explained_bytes=kept.rise_bytes - unexplained,
                fell=kept.fell,
            )
        ]

    def close(self) -> None:
        """Sinks and recording close; an interrupt in one of them stops none of the others."""
        with contextlib.ExitStack() as last:  # from the bottom up
            last.callback(self._close_recording)
            for sink in self.sinks:
                last.callback(self._close_sink, sink)

    def _close_recording(self) -> None:
        if self.recording is not None:
            try:
                self.recording.close()
            except Exception as error:
                self._recording_failed(error)

    def _close_sink(self, sink: Sink) -> None:
        try:
            sink.close()
        except Exception as error:
            self._sink_failed(sink, error)

    def _sink_failed(self, sink: Sink, error: Exception) -> None:
        """It is asked no more; where it could not write, that is told as such."""
        if isinstance(error, OSError):
            self.parts.cannot_write(_name(sink), error)
        else:
            self.parts.failed(_name(sink), error)

    def _recording_failed(self, error: BaseException) -> None:
        recording, self.recording = self.recording, None
        if recording is not None:
            with contextlib.suppress(Exception):  # the failure that ends it is told below
                recording.close()
        self.parts.cannot_write(RECORDING, error)

    def _use(self, detectors: Sequence[Rule]) -> None:
        """Takes these rules, and knows who hears of what."""
        self._detectors = list(detectors)
        self._hearing = Subscriptions(detectors)
        self._learners = [(part_of(d), d.learn) for d in detectors if type(d).learn is not Rule.learn]

    def _drop(self, part: str) -> None:
        """A part failed: the rule or sink of that name is asked no more."""
        self._use([d for d in self._detectors if part_of(d) != part])
        self.sinks = [sink for sink in self.sinks if _name(sink) != part]
        self._switched_off(part)

    def _tell_shapes(self, number: int, shapes: list[Any]) -> None:
        self.line("shapes", {"id": number, "shapes": shapes})


def _name(sink: Sink) -> str:
    return type(sink).__name__
