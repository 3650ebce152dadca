"""One guarded process, assembled from the options: backend, slow lane, recorder, probes, guards and sinks.

Front doors translate their host's hooks to the methods here; each method survives every fault of memguard's own.
`session_parts` chooses what it is made of, `overhead` reports what it cost. Long because each event of a loop has its
method here, and each part its place in opening and closing.
"""

from __future__ import annotations

import functools
import os
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any, final

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from memguard import phases
from memguard.backends.auto import AutoBackend
from memguard.backends.choose import choose_backend
from memguard.backends.host import HostMemory
from memguard.backends.slow_lane import SlowLane, is_tight
from memguard.clocks import perf_counter
from memguard.evidence import PROBES
from memguard.evidence.dispatcher import ProbeDispatcher
from memguard.evidence.guarded_hook import Hook, functorch_stack, tracing_state
from memguard.evidence.shapes import describe_shapes
from memguard.forks import process
from memguard.guards.empty_cache import CacheGuard
from memguard.integrations import LOADING_BEGAN
from memguard.integrations.devices import FurtherDevices
from memguard.integrations.fleet import Fleet
from memguard.integrations.loop.fast_path_hooks import StepEnd, StepStart
from memguard.integrations.loop.others import OtherModels
from memguard.integrations.loop.skipped_forwards import SkippedForwards
from memguard.integrations.never_raises import take_away
from memguard.integrations.oom.watch import OomWatch
from memguard.integrations.overhead import Overhead
from memguard.integrations.peak_owners import PeakOwners
from memguard.integrations.phase_edges import PhaseEdges
from memguard.integrations.ray_train import ray_storage
from memguard.integrations.run_upload import RunUpload
from memguard.integrations.session_parts import describe_run, find_launch, make_sinks, make_watch
from memguard.integrations.trainers.phase_methods import PhaseMethods
from memguard.integrations.validation import ValidationGuard
from memguard.options import Options, choose_logdir
from memguard.recorder import Recorder
from memguard.recording.destination import Destination, find_destination
from memguard.records.claims import Claim
from memguard.records.stats import BatchRecord, Run, SlowStats, Stage
from memguard.records.summary import Summary
from memguard.rules import ALL_RULES, make_rules
from memguard.rules.selection import codes_of
from memguard.sinks.code_lines import CodeLines
from memguard.torch_objects.hidden_hooks import numbers_of_ours

if TYPE_CHECKING:
    from memguard.integrations.guard import Guard
    from memguard.integrations.loop.fast_path import FastPath
    from memguard.integrations.peer_watch import PeerWatch
    from memguard.integrations.trainers.answers import Answers

# Sessions that are open in this process, innermost last: `Session.open` adds, `Session.close` takes away.
_open: list[Session] = []
# Told of each session's beginning and end: `memguard run` adds itself and takes itself away.
on_open: list[Callable[[], None]] = []
on_close: list[Callable[[Summary], None]] = []
# Seconds that loading memguard's modules took, which end with this one; the first session takes them away.
_loading: list[float] = [] if LOADING_BEGAN is None else [perf_counter() - LOADING_BEGAN]


def open_sessions() -> list[Session]:
    """The sessions that are open in this process, innermost last."""
    return [session for session in _open if session.is_open]


UNOPENED = (
    "this guard was never opened, so it has watched and recorded nothing; use it as "
    "`with memguard.watch(...) as guard:`"
)
_PATIENCE = 64  # training batches after which a program that uses no accelerator is taken to train on the host


@final
class Session:
    """Everything that guards one process, with the events of the loop as methods.

    Args:
        options: The settings.
        default_logdir: The host framework's own directory for this run, if it has one.
        root: Else where ``memguard-runs`` lies.
        writer: Gives the user's TensorBoard writer, or None; asked at the first point.
        lightning: Whether Lightning drives the loop.
        rank: This process's rank; None asks torch.distributed, and where it is not initialised yet the environment.
        world_size: Number of processes; likewise.
        console: Whether findings are printed as they come.
        record: Whether to write anything to disk.
    """

    def __init__(
        self,
        options: Options,
        *,
        default_logdir: str | os.PathLike[str] | None = None,
        root: str | os.PathLike[str] = "",
        writer: Callable[[], Any] | None = None,
        lightning: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        console: bool = True,
        record: bool = True,
    ) -> None:
        began = perf_counter()
        self.options = options
        self.handle: Callable[[], Guard | Answers | None] | None = None
        """Weakly, what its user holds: set by who makes the session."""
        self.launch = launch = find_launch(rank, world_size)
        rank, world_size = launch.rank, launch.world_size
        name = launch.run or time.strftime("%Y%m%d-%H%M%S")
        self.place = choose_logdir(options, default_logdir or ray_storage(), name, root=root)
        """The run's directory, a path or a URL."""
        destination = find_destination(self.place) if record else Destination(local=Path(self.place))
        self.logdir: Path = destination.local
        """Where its files are written."""
        self.backend = choose_backend(options.device, peaks=options.peaks)
        code = CodeLines(lambda kind, data: self.recorder.line(kind, data))
        self._slow = SlowLane(self._read_slow, errands=[self._visit_fleet, code.read], presses=self._presses)
        self._host = HostMemory()
        sinks = make_sinks(options, writer, self.logdir, rank, console=console, record=record)
        self.recorder = Recorder(
            self.backend,
            Run(device=options.device, rank=rank, world_size=world_size),
            logdir=self.logdir if record else None,
            detectors=make_rules(rules=options.rules, ignore=options.left_out),
            sinks=[*sinks, code] if record and options.source else sinks,
            slow=self._slow.newest,
            rss=self._host.rss_bytes,
            silenced=codes_of(ALL_RULES, options.left_out),
        )
        self.watch = make_watch(options, self.backend, lightning=lightning)
        self.watch.find_record, self.watch.line = self._newest_record, self.recorder.line
        self.probes = ProbeDispatcher(self.watch, PROBES)
        self.cache = CacheGuard(options.empty_cache, self.backend)
        self._phase_edges = PhaseEdges(functools.partial(self._safely, "phase edges", self._at_phase_edge))
        self.validation = ValidationGuard(options.validation, self.recorder, self.watch)
        reports = options.on_oom == "report"
        self.oom = OomWatch(self, enabled=reports, history=options.history, logdir=self.logdir if record else None)
        self.devices = FurtherDevices(self)
        self.fleet = Fleet(self)
        self.upload = RunUpload(destination, self.recorder, launch)
        self.peers: PeerWatch | None = None
        if launch.world_size > 1 and record and reports:
            from memguard.integrations.peer_watch import PeerWatch
            from memguard.integrations.peers import Peers

            self.peers = PeerWatch(self, Peers(destination.shared or self.logdir, rank))
        self.host_limit_bytes: int | None = None
        """What the kernel would kill this process at."""
        self._step_hooks: list[tuple[dict[int, Any], int, Callable[..., None]]] = []
        """Those of all optimizers: torch's table, the number in it, and what is called."""
        self._removals: list[Callable[[], object]] = []
        self._opened = False
        self.has_begun = False
        """Whether it was ever opened."""
        self._thread, self._pid = get_ident(), process.pid
        self._stages: list[Stage] = []
        self._planned: int | None = None
        self._train_batches = 0
        self._owners = PeakOwners(self.recorder, self.watch, self.backend)
        self.calm = SkippedForwards(self)
        self.others = OtherModels(
            self.watch, self.probes, self.is_foreign, self._add_other, functools.partial(self.recorder.failed, "others")
        )
        self.express: FastPath | None = None  # the short way of a plain loop's ordinary batches
        self.account = Overhead(self)
        self.phase_methods = PhaseMethods(functools.partial(self.recorder.failed, "phase methods"))
        self.on_step: tuple[Callable[[], None], Callable[[], None]] | None = None
        """Called before and after each optimizer step, where a front door needs it."""
        self.on_batch: Callable[[], bool] | None = None
        """Called at the end of a batch, on the fast path not of each: whether it must be at the next one's."""
        self.on_optimizer: Callable[[], None] | None = None
        """Called as an optimizer makes its first step."""
        self.recorder.start_up_seconds = perf_counter() - began + (_loading.pop() if _loading else 0.0)

    @property
    def is_open(self) -> bool:
        """Whether the session runs, in the process that began it."""
        return self._opened and process.pid == self._pid

    def open(self) -> None:
        """The run begins."""
        if self._opened:
            return
        began = perf_counter()
        self.has_begun = True
        self._opened = True  # first: what an interrupt leaves from here on, `close` takes away
        try:
            self._safely("recorder", self._open_recorder)
        except torch.OutOfMemoryError:
            self._opened = False
            raise
        _open.append(self)
        self.recorder.listeners.append(self._after_records)
        self._safely("slow lane", self._slow.start)
        self._safely("probes", self.probes.install)
        self._safely("optimizer hooks", self._hook_optimizers)
        self._safely("validation guard", self.validation.install)
        self._safely("out-of-memory report", self.oom.install)
        self._safely("others", self.others.begin)
        if self.cache.hears_phases:
            phases.listen(self._phase_edges)
        for listener in on_open:
            self._safely("beginning", listener)
        self.recorder.start_up_seconds += perf_counter() - began

    def close(self, reason: str = "finished") -> Summary:
        """The run is over; everything put in place is taken away. A second call only returns the summary."""
        if self._opened:
            parts: tuple[tuple[str, Callable[[], object]], ...] = (  # from the bottom up
                ("end", self._tell_end),
                ("sessions", self._leave_sessions),
                ("upload", functools.partial(self.upload.end, failed=reason.startswith("an exception"))),
                ("host memory", self._host.remove),
                ("slow lane", self._slow.stop),
                ("phase methods", self.phase_methods.remove),
                ("phase edges", functools.partial(phases.ignore, self._phase_edges)),
                ("probes", self.probes.remove),
                ("recorder", functools.partial(self.recorder.close, reason)),
                ("further devices", functools.partial(self.devices.close, reason)),
                ("cache policy", self.account.of_cache),
                ("pace", self.account.of_pace),
                ("other threads", self.account.of_threads),
                ("out-of-memory report", self.oom.remove),
                ("validation guard", self.validation.remove),
                ("optimizer hooks", self._unhook_optimizers),
                ("others", self.others.remove),
                ("parallel axes", self.fleet.learn),
                ("last look", self._look_back),
            )
            removals: list[Callable[[], object]] = [functools.partial(self._safely, *part) for part in parts]
            self._removals = [*removals, self.batch_end]
            self._opened = False
        take_away(self._removals)
        return self.recorder.summary

    def so_far(self) -> Summary:
        """The run so far."""
        if self.is_open:
            self.account.tell_so_far()
        return self.recorder.summary

    def plan(self, *, num_epochs: int | None = None, max_steps: int | None = None) -> None:
        """How long the loop means to run, where it tells."""
        batches = self.recorder.run.batches_per_epoch.get(Stage.TRAIN)
        planned = [num_epochs * batches] if num_epochs and batches else []
        if max_steps:
            planned.append(max_steps)
        self._planned = min(planned) if planned else None

    def extra_roots(self, roots: list[tuple[str, object]]) -> None:
        """Named objects besides frames and models where a holder may hang; held weakly where possible."""
        references = [(name, weakref.ref(root)) for name, root in roots if root is not None]
        self.watch.extra_roots = lambda: [(name, root) for name, ref in references if (root := ref()) is not None]

    # Stages and batches

    def stage_start(self, stage: Stage, *, epoch: int | None = None, batches: int | None = None) -> None:
        """A stage begins."""
        with self.recorder.part("session"):
            self.recorder.stage_start(stage, epoch=epoch, batches=batches)
            self.devices.stage_start(stage, epoch)
            self._stages.append(stage)
            self._at_edge(stage, starts=True)
            self.probes.stage_start(stage)

    def stage_end(self, stage: Stage) -> None:
        """A stage is over."""
        with self.recorder.part("session"):
            if stage not in self._stages:
                return
            self.batch_end()
            self.probes.stage_end(stage)
            self.recorder.learn(self.probes.take())
            self.recorder.stage_end(stage)
            self.devices.stage_end(stage)
            while self._stages.pop() is not stage:
                pass
            self._at_edge(stage, starts=False)
            if self._stages:
                self.watch.stage = self._stages[-1]

    def in_stage(self, stage: Stage) -> bool:
        """Whether a stage has begun and not ended."""
        return stage in self._stages

    def epoch_end(self) -> None:
        """A training epoch is over."""
        with self.recorder.part("session"):
            finding = self.cache.at_epoch_end(batch=self.recorder.batch)
            if finding is not None:
                self.recorder.add(finding)

    def batch_start(self, index: int | None = None, inputs: Any = None) -> None:
        """A batch begins.

        Args:
            index: Its number within stage and epoch.
            inputs: The batch itself, looked at for its shapes and not kept.
        """
        recorder, probes = self.recorder, self.probes
        try:
            if probes.in_batch or recorder.row.is_open:
                self.batch_end()
            recorder.batch_start(index, describe_shapes(inputs) if inputs is not None else None)
            if self.devices.listens:
                self.devices.batch_start(index)
            oom = self.oom
            if oom.attentive:
                oom.alive()
            stage = recorder.stage
            looks = probes.batch_start(recorder.row.batch, stage)
            self.others.listen(looks)
            self.calm.is_on = (
                not looks
                and stage is Stage.TRAIN
                and probes.passes_over
                and not (oom.attentive or self.validation.owes)
            )
        except Exception as error:
            recorder.failed("session", error)

    def returned(self, output: object) -> None:
        """The user's step has returned."""
        try:
            self.probes.returned(output)
        except Exception as error:
            self.recorder.failed("session", error)

    def batch_end(self) -> None:
        """The open batch is over."""
        recorder, probes, calm = self.recorder, self.probes, self.calm
        if recorder.row.is_open and self.express is not None:
            self.express.leave(in_hook=False)
        if not recorder.batch_is_open:
            return
        if calm.is_on or calm.under_way:
            calm.batch_end()
        try:
            looks = probes.active
            recorder.batch_end(at_once=self.cache.counts_batches)
            if self.devices.listens:
                self.devices.batch_end()
            probes.batch_end()
            if probes.waiting:
                recorder.learn(probes.take())
            if looks:
                self.account.settle()
            if self.on_batch is not None:
                self.on_batch()
        except Exception as error:
            recorder.failed("session", error)

    @property
    def is_calm(self) -> bool:
        """Whether ordinary batches could pass recorder and probes alone, on the fast path.

        Until a model joins, or a batch arrives in any other way: then the fast path begins anew.
        """
        is_named = self.recorder.phases.busy  # a phase takes the peaks of each batch
        return not (
            is_named or self.devices.listens or self.oom.attentive or self.validation.owes or self.cache.counts_batches
        )

    # Model and optimizer

    def add_model(self, model: nn.Module) -> None:
        """Watches one more root model."""
        self.calm.add_model()
        self.others.leave(model)
        self.validation.joined()
        self._add_other(model)

    def _add_other(self, model: nn.Module) -> None:
        """A model is called that no front door was given."""
        with self.recorder.part("probes"):
            self.probes.add_model(model)
        with self.recorder.part("further devices"):
            self.devices.find([model])

    def disturb(self) -> None:
        """Something happened: the rest of the open batch is not passed over."""
        self.calm.is_on = False
        if self.express is not None:
            self.express.disturb()

    def forward_start(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A root model is called; the validation guard decides here whether it builds a graph.

        Front doors ask `is_foreign` first.
        """
        try:
            self.oom.called(id(model), self.recorder.row.batch, training=model.training, alive=True)
            self.others.opened(model)
            self.probes.forward_start(model, args, kwargs)
        except Exception as error:
            self.recorder.failed("session", error)
        validation = self.validation
        if id(model) == validation.settled and model.training:
            return
        try:
            validation.forward_start(model, args, kwargs)
        except Exception as error:
            validation.release()
            self.recorder.failed("validation guard", error)

    def forward_end(self, model: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """A root model has answered. Front doors ask `is_foreign` first."""
        validation = self.validation
        if not (id(model) == validation.settled and model.training):
            try:
                validation.forward_end(model, output)
            except Exception as error:
                validation.release()
                self.recorder.failed("validation guard", error)
        try:
            if output is None:
                self.oom.passing()
            self.probes.forward_end(model, args, output)
        except Exception as error:
            self.recorder.failed("session", error)

    def is_foreign(self) -> bool:
        """Whether this code runs in another process or thread, or under a transform: nothing is looked at then."""
        return (
            get_ident() != self._thread
            or process.pid != self._pid
            or functorch_stack() is not None  # what `in_eager_transform` asks, in one call less
            or tracing_state() is not None
        )

    def move_here(self) -> None:
        """The calling thread is the one that trains: nothing happened on the one that was guarded, or it is over."""
        self.batch_end()
        self._thread = self.recorder.row.thread = get_ident()
        self.calm.move_here()
        self.watch.elsewhere.moved()
        self.backend.follow_thread()

    @property
    def thread_is_over(self) -> bool:
        """Whether the guarded thread has ended."""
        return self._thread not in sys._current_frames()

    def step_start(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """An optimizer begins its step; told by torch's hook."""
        if get_ident() != self._thread or process.pid != self._pid:
            return
        try:
            is_new = self.probes.optimizer_step_start(optimizer)
            if self.on_step is not None:
                self.on_step[0]()
            if is_new and self.on_optimizer is not None:
                self.on_optimizer()
        except Exception as error:
            self.recorder.failed("session", error)

    def step_end(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """An optimizer has made its step; likewise."""
        if get_ident() != self._thread or process.pid != self._pid:
            return
        try:
            self.recorder.row.optimizer_steps += 1
            if self.devices.listens:
                self.devices.optimizer_step()
            self.probes.optimizer_step_end(optimizer)
            if self.on_step is not None:
                self.on_step[1]()
        except Exception as error:
            self.recorder.failed("session", error)

    def backward_start(self, loss: Any) -> None:
        """A backward is about to run from this loss."""
        try:
            self.probes.backward_start(loss)
        except Exception as error:
            self.recorder.failed("session", error)

    def loss(self, loss: Any) -> None:
        """Likewise, where nobody tells of backwards but for a probe that asks for losses."""
        try:
            self.probes.loss(loss)
        except Exception as error:
            self.recorder.failed("session", error)

    def backward_end(self) -> None:
        """The backward is over."""
        try:
            self.probes.backward_end()
        except Exception as error:
            self.recorder.failed("session", error)

    def exception(self, error: BaseException) -> None:
        """The step failed; the error is not kept."""
        self._safely("validation guard", self.validation.release)
        with self.recorder.part("session"):
            self.probes.exception(error)
            self.recorder.learn(self.probes.take())
        with self.recorder.part("out-of-memory report"):
            self.oom.failed(error)
        self._safely("upload", self.upload.at_once)

    # Inside

    def _safely(self, name: str, act: Callable[[], object]) -> None:
        """Puts one part in place or takes it away; its failure stops no other part."""
        try:
            act()
        except torch.OutOfMemoryError:
            raise  # what is there already does not fit the virtual device: the user's business
        except Exception as error:
            self.recorder.failed(name, error)

    def _open_recorder(self) -> None:
        with self.recorder.part("host memory"):
            self._host.install()
            self.host_limit_bytes = self._host.limit().limit_bytes
        described = {**describe_run(self.options, self.launch), "host_limit_bytes": self.host_limit_bytes}
        with self.recorder.part("upload"):
            described["first_batch"] = self.upload.begin()
        self.recorder.open(described)
        self.devices.open(described)
        if self.peers is not None:
            with self.recorder.part("other ranks"):
                self.peers.begin()

    def _read_slow(self) -> SlowStats:
        """Runs in the slow lane's thread."""
        if self.peers is not None and not self.recorder.is_off("other ranks"):
            with self.recorder.part("other ranks"):
                self.peers.look()
        return self.backend.read_slow()

    def _visit_fleet(self) -> None:
        """Runs in the slow lane's thread too: coordinates and exports."""
        self.fleet.visit()

    def _presses(self, newest: SlowStats) -> bool:
        """Whether the slow lane reads often: for other ranks, where something is suspected, where memory is short."""
        return self.peers is not None or self.watch.batch <= self.watch.dense_until or is_tight(newest)

    def _hook_optimizers(self) -> None:
        failed = functools.partial(self.recorder.failed, "optimizer hooks")
        start: Callable[..., None] = Hook(self.step_start, failed)
        end: Callable[..., None] = Hook(self.step_end, failed)
        if self.express is not None:
            start, end = StepStart(self.express, self.probes, failed), StepEnd(self.express, self.probes, failed)
        # Not registered with torch's functions: an interrupt between a hook and its handle would leave the hook.
        from torch.optim.optimizer import _global_optimizer_post_hooks as after  # private; checked in torch 2.4, 2.13
        from torch.optim.optimizer import _global_optimizer_pre_hooks as before

        self._step_hooks = [(before, next(numbers_of_ours), start), (after, next(numbers_of_ours), end)]
        for table, number, hook in self._step_hooks:
            table[number] = hook

    def _unhook_optimizers(self) -> None:
        for table, number, _ in self._step_hooks:
            table.pop(number, None)

    def _look_back(self) -> None:
        self.probes.run_end()
        self.recorder.learn(self.probes.take())

    def _leave_sessions(self) -> None:
        _open[:] = [session for session in _open if session is not self]

    def _tell_end(self) -> None:
        for listener in on_close:
            self._safely("end", functools.partial(listener, self.recorder.summary))

    def _after_records(self, records: Sequence[BatchRecord]) -> None:
        run = self.recorder.run
        if self.watch.device_total_bytes is None:
            self.watch.device_total_bytes = run.limit_bytes or run.device_total_bytes
            self.watch.device = run.device  # "auto" until a device was found
        trained = sum([record.stage is Stage.TRAIN for record in records])
        if trained:
            before, self._train_batches = self._train_batches, self._train_batches + trained
            if before < _PATIENCE <= self._train_batches and isinstance(self.backend, AutoBackend):
                self.backend.settle()
            if self._planned is not None:
                run.batches_left = max(self._planned - self._train_batches, 0)
        self._owners.after_records(records)
        for record in records if self.cache.counts_batches else ():
            if (finding := self.cache.after_batch(record)) is not None:
                self.recorder.add(finding)
        self.probes.records(records)

    def _newest_record(self) -> BatchRecord | None:
        return self.recorder.newest

    def _at_phase_edge(self) -> None:
        recorder = self.recorder
        finding = self.cache.at_phase_edge(self.watch.stage, batch=recorder.batch, run=recorder.run)
        if finding is not None:
            recorder.add(finding)

    def _at_edge(self, stage: Stage, *, starts: bool) -> None:
        finding: Claim | None = self.cache.at_edge(
            stage, batch=self.recorder.batch, starts=starts, run=self.recorder.run
        )
        if finding is not None:
            self.recorder.add(finding)
