"""Dispatches events to the probes, decides which batches they sample, and survives their failures.

An integration makes one `ProbeDispatcher`, delivers the events below on the training thread, and after each batch
passes on what `take` returns. It delivers, in this order (see `memguard.records.stats` for the loop)::

    add_model(model)                       once for each root; then forward_start/_end from hooks on exactly that module
    stage_start(stage)
      batch_start(batch, stage)            before the first forward of a batch
        forward_start(module, args, kwargs), forward_end(module, args, output)
        backward_start(loss), backward_end()                       optional; only Lightning can tell
        loss(loss)                         elsewhere, while a probe asks (hears_losses)
        optimizer_step_start(optimizer), optimizer_step_end(optimizer)      from the global optimizer hooks
      batch_end()                          after its numbers were read, so that no look is charged to the batch
      records(records)                     the records as they are made, in order
      take() -> facts
    stage_end(stage)
    exception(error)                       when a step fails; take() works afterwards
    run_end()                              once; take() works afterwards
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from sys import exc_info
from threading import get_ident
from typing import Any, final

import torch
from torch import nn

from memguard.clocks import perf_counter
from memguard.evidence.guarded_hook import functorch_stack, in_transform, tracing_state
from memguard.evidence.interface import EVENTS, Probe, ProbeContext
from memguard.evidence.sampling_budget import FIRST_BATCHES, MAX_INTERVAL, SamplingBudget
from memguard.forks import process
from memguard.records.facts import Fact
from memguard.records.stats import BatchRecord, Stage
from memguard.torch_objects.storages import unheard

_log = logging.getLogger("memguard")
_TRAIN = Stage.TRAIN  # asked in each batch; an attribute of an Enum is looked up through its metaclass

LATE_MODELS, LATE_LOOKS = 4, 16
"""Models that are first called after the first batches, and how many batches are looked at for each of them."""
MAX_ASKED = 32
"""Batches that are looked at because of what happens in them, beside those that are due."""

_FORWARDS = frozenset({"on_forward_start", "on_forward_end", "on_stem_end"})
"""Always heard between two batches: sampling in a hook of the loop is evaluation as well."""
_UNSAMPLED = frozenset(
    {"on_model", "on_optimizer", "on_stage_start", "on_stage_end"}
    | {"on_records", "on_forward_in_handler", "on_exception", "on_run_end"}
)
"""Rare events, heard in every batch."""
_EACH_BATCH = _FORWARDS | {
    *("on_batch_start", "on_batch_end", "on_backward_start", "on_loss", "on_backward_end"),
    *("on_optimizer_step_start", "on_optimizer_step_end"),
}

Listeners = tuple[tuple[Probe, Callable[..., None]], ...]


@final
class ProbeDispatcher:
    """The panel of probes of one run.

    Args:
        watch: What the probes may know; kept up to date here.
        kinds: The probe classes, usually `memguard.evidence.PROBES`.

    Attributes:
        pace: How often they look.
        failed: The probes that failed and are switched off, with their error in words.
        seconds: Own time so far, all events together.
        active: Whether the open batch is looked at.
        in_batch: Whether one is open.
        settled_seconds: How much of it the pace knows of.
        waiting: Facts for the next `take`.
        passes_over: Whether no probe hears of forwards in batches that are not looked at.
        is_quiet: Whether none hears of anything in them.
        hears_more: Whether any hears of losses, or of a step's start, in those that are.
    """

    def __init__(
        self,
        watch: ProbeContext,
        kinds: Sequence[type[Probe]],
    ) -> None:
        self.watch = watch
        watch.stem_end = self.stem_end
        self.pace = SamplingBudget()
        self.failed: list[str] = []
        self.seconds = 0.0
        self.active = False
        self.in_batch = False
        self._asked = self._late_models = 0
        self.waiting: list[Fact] = []
        self._thread = get_ident()
        self._pid = process.pid
        self.settled_seconds = 0.0
        self._probes: list[Probe] = []
        self._leaving: list[Probe] = []
        self._dense: dict[str, Listeners] = {}
        self._always: dict[str, Listeners] = {}
        self._between: dict[str, Listeners] = {}
        self._heard = self._between
        for kind in kinds:
            try:
                self._probes.append(kind(watch, self._report))
            except Exception as error:
                self._tell(kind.name, error)
        watch.resubscribe = self._wire
        self._wire(*EVENTS)

    def _report(self, fact: Fact) -> None:
        self.waiting.append(fact)
        self.watch.learn(fact)

    def install(self) -> None:
        """Puts the probes in place."""
        for probe in tuple(self._probes):
            try:
                probe.install()
            except Exception as error:
                self._switch_off(probe, error)

    def remove(self) -> None:
        """Takes everything away that the probes put in place; nothing is heard any more."""
        self.active = False
        self._leaving, self._probes = [*self._leaving, *self._probes], []
        self._wire(*EVENTS)
        while self._leaving:  # one that an interrupt stopped is still among them, should this be called again
            try:
                self._leaving[0].remove()
            except Exception as error:
                self._tell(self._leaving[0].name, error)
            del self._leaving[0]

    def take(self) -> list[Fact]:
        """The facts since the last call, oldest first."""
        facts = self.waiting[:]
        self.waiting.clear()
        return facts

    def add_model(self, model: nn.Module) -> None:
        """Watches one more root model; a second call with the same one does nothing."""
        if self.watch.add_model(model):
            self._emit(self._heard["on_model"], model)
            if self.watch.batches > FIRST_BATCHES and self._late_models < LATE_MODELS:
                self._late_models += 1  # a teacher that joins after a warm-up, say
                self.watch.look_closely(LATE_LOOKS, surely=True)

    def stage_start(self, stage: Stage) -> None:
        """A stage begins."""
        self.watch.stage = stage
        self._emit(self._heard["on_stage_start"], stage)

    def stage_end(self, stage: Stage) -> None:
        """A stage is over."""
        self._emit(self._heard["on_stage_end"], stage)
        self.watch.stage = Stage.OTHER

    def batch_start(self, batch: int, stage: Stage) -> bool:
        """A batch begins; decides whether it is looked at, and tells.

        Args:
            batch: Number of the record this batch will become.
            stage: What the loop is doing.
        """
        watch = self.watch
        watch.batch, watch.stage = batch, stage
        watch.batches += 1
        self._thread = get_ident()
        self.in_batch = True
        closely, surely, trains = batch <= watch.dense_until, batch <= watch.forced_until, stage is _TRAIN
        graphs = not trains and stage.evaluates and torch.is_grad_enabled()
        watch.number = self.pace.number(stage)
        if trains and watch.due is not None and watch.number >= watch.due:
            watch.due, surely = None, True
        active = self.pace.looks(stage, closely=closely, surely=surely, graphs=graphs)
        self.active, self._heard = active, (heard := self._dense if active else self._always)
        if listeners := heard["on_batch_start"]:
            self._emit(listeners)
        return active

    def join(self) -> None:
        """A batch is open that nobody looked at so far, of the stage of the last one, and was counted by the caller."""
        self.in_batch = True
        self._heard = self._always

    def leave(self) -> None:
        """The open batch, which nobody looks at, goes on without a word here."""
        self.in_batch = False
        self._heard = self._between

    def quiet_batches_ahead(self, stage: Stage) -> int:
        """How many batches of a stage may come that nobody looks at, until the next one is due."""
        if not self._probes:
            return MAX_INTERVAL
        ahead, due = self.pace.quiet_batches_ahead(stage), self.watch.due if stage is Stage.TRAIN else None
        return ahead if due is None else max(min(ahead, due - self.pace.number(stage)), 0)

    def look_now(self) -> None:
        """The rest of the open batch is looked at after all; a run may ask for it a few times."""
        if self.in_batch and not self.active and self._asked < MAX_ASKED:
            self._asked += 1
            self.active, self._heard = True, self._dense

    def ordinary_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """An ordinary batch of training begins, whose number `watch` knows, with its forward."""
        if self.batch_start(self.watch.batch, _TRAIN) or not self.passes_over:
            self._emit(self._heard["on_forward_start"], module, args, kwargs)

    def forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """A root model is called; not told of calls under a transform (`in_eager_transform`), nor of their end."""
        if listeners := self._heard["on_forward_start"]:
            self._emit(listeners, module, args, kwargs)
        if exc_info()[1] is not None:
            self._emit(self._heard["on_forward_in_handler"])

    def forward_end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """A root model has answered."""
        if listeners := self._heard["on_forward_end"]:
            self._emit(listeners, module, args, output)

    def stem_end(self, module: nn.Module, args: object, output: object) -> None:
        """The model's stem has answered; its hook calls this, integrations need not."""
        if (listeners := self._heard["on_stem_end"]) and functorch_stack() is None and tracing_state() is None:
            self._emit(listeners, module, output)  # in user code; that nobody compiles it the hook has asked

    def backward_start(self, loss: torch.Tensor) -> None:
        """A backward begins, maybe while a transform runs; so does what follows from it."""
        if (listeners := self._heard["on_backward_start"]) and not in_transform():
            self._emit(listeners, loss)
        self.loss(loss)

    def loss(self, loss: torch.Tensor) -> None:
        """A backward begins, in a loop that tells of backwards only while somebody `hears_losses`."""
        if (listeners := self._heard["on_loss"]) and not in_transform():
            self._emit(listeners, loss)

    def backward_end(self) -> None:
        """A backward is over."""
        if (listeners := self._heard["on_backward_end"]) and not in_transform():
            self._emit(listeners)

    def optimizer_step_start(self, optimizer: torch.optim.Optimizer) -> bool:
        """An optimizer is about to step; whether for the first time."""
        is_new = self.watch.add_optimizer(optimizer)
        if is_new:
            self._emit(self._heard["on_optimizer"], optimizer)
        if listeners := self._heard["on_optimizer_step_start"]:
            self._emit(listeners, optimizer)
        return is_new

    def optimizer_step_end(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has stepped; counted here."""
        self.watch.optimizer_steps += 1
        if listeners := self._heard["on_optimizer_step_end"]:
            self._emit(listeners, optimizer)

    def returned(self, output: object) -> None:
        """The user's step has returned."""
        if listeners := self._heard["on_returned"]:
            self._emit(listeners, output)

    def batch_end(self) -> None:
        """The batch is over; call it after the record's numbers were read."""
        if listeners := self._heard["on_batch_end"]:
            self._emit(listeners)
        self.in_batch = False
        self._heard = self._between
        looked, self.active = self.active, False
        if self.seconds != self.settled_seconds:
            self.settle()
        if looked:
            self.pace.looked()

    def settle(self) -> None:
        """Takes what was spent since the last call from what the pace may spend."""
        spent, self.settled_seconds = self.seconds - self.settled_seconds, self.seconds
        if not self.waiting:  # else it is the naming of a cause that took the time: once
            self.pace.spend(spent)

    @property
    def hears_backwards(self) -> bool:
        """Whether any probe hears of the backwards of the open batch."""
        return bool(self._heard["on_backward_start"] or self._heard["on_backward_end"] or self.hears_losses)

    @property
    def hears_losses(self) -> bool:
        """Whether any probe asks for the losses of the open batch."""
        return bool(self._heard["on_loss"])

    def records(self, records: Sequence[BatchRecord]) -> None:
        """Records were made, of this batch or of earlier ones."""
        if listeners := self._heard["on_records"]:
            self._emit(listeners, records)

    def exception(self, error: BaseException) -> None:
        """The step failed."""
        self._emit(self._heard["on_exception"], error)

    def run_end(self) -> None:
        """The run is over, and its last batch."""
        self._emit(self._heard["on_run_end"])

    def _emit(self, listeners: Listeners, *args: Any) -> None:
        if get_ident() != self._thread or process.pid != self._pid:
            return
        began = perf_counter()
        with unheard():
            for probe, listener in listeners:
                try:
                    listener(*args)
                except Exception as error:
                    self._switch_off(probe, error)
        self.seconds += perf_counter() - began

    def _wire(self, *events: str) -> None:
        """Looks anew which probes hear some events: in every batch, in those looked at, and between two batches."""
        for event in events:
            kinds = [probe for probe in self._probes if getattr(type(probe), event) is not getattr(Probe, event)]
            hearing = [probe for probe in kinds if event not in probe.deaf]
            self._dense[event] = tuple((probe, getattr(probe, event)) for probe in hearing)
            always = [probe for probe in hearing if event in probe.always or event in _UNSAMPLED]
            self._always[event] = tuple((probe, getattr(probe, event)) for probe in always)
            self._between[event] = (self._dense if event in _FORWARDS else self._always)[event]
        self.passes_over = not any(self._always[event] for event in _FORWARDS)
        self.is_quiet = not any(self._always[event] for event in _EACH_BATCH)
        self.hears_more = bool(self._dense["on_loss"] or self._dense["on_optimizer_step_start"])
        self.watch.request_attention()

    def _switch_off(self, probe: Probe, error: Exception) -> None:
        self._probes = [other for other in self._probes if other is not probe]
        self._wire(*EVENTS)
        try:
            probe.remove()
        except Exception:
            pass  # the failure that switched it off is told below; a second one of the same probe adds nothing
        self._tell(probe.name, error)

    def _tell(self, name: str, error: Exception) -> None:
        _log.warning("memguard's probe %r failed and is switched off: %s: %s", name, type(error).__name__, error)
        self.failed.append(f"{name}: {error!r}")
