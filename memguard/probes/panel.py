"""Owns the probes: hands them the events, decides which batches are looked at, and survives every one of them.

An integration makes one `Probes`, delivers the events below on the training thread, and after each batch passes on what
`take` returns. It delivers, in this order (see `memguard.stats` for the loop)::

    add_model(model)                       once for each root; then forward_start/_end from hooks on exactly that module
    stage_start(stage)
      batch_start(batch, stage)            before the first forward of a batch
        forward_start(module, args, kwargs), forward_end(module, args, output)
        backward_start(loss), backward_end()                       optional; only Lightning can tell
        optimizer_step_start(optimizer), optimizer_step_end(optimizer)      from the global optimizer hooks
      batch_end(record)                    after the record's numbers were read, so that no look is charged to the batch
      take() -> facts
    stage_end(stage)
    exception(error)                       when a step fails; take() works afterwards
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from typing import Any, final

import torch
from torch import nn

from memguard.facts import Fact
from memguard.forks import pid
from memguard.probes.interface import EVENTS, Probe, Watch
from memguard.stats import BatchRecord, Stage

_log = logging.getLogger("memguard")

DENSE_BATCHES = 64
"""Batches of each stage in which every event is heard."""
INTERVAL = 16
"""Afterwards one batch in so many."""
MAX_SHARE = 0.002
"""Own time over batch time above which the interval is doubled."""
MAX_INTERVAL = 1024

_FORWARDS = frozenset({"on_forward_start", "on_forward_end", "on_stem_end"})
"""Always heard between two batches: sampling in a hook of the loop is evaluation as well."""

_functorch: Callable[[], object] | None = getattr(
    getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None
)  # checked in torch 2.13
_tracing: Callable[[], object] | None = getattr(torch._C, "_get_tracing_state", None)  # checked in torch 2.13


def in_transform() -> bool:
    """Whether code runs under torch.func, torch.compile's tracing or torch.jit.trace: probes look away there."""
    if torch.compiler.is_compiling():
        return True
    if _functorch is not None and _functorch() is not None:
        return True
    return _tracing is not None and _tracing() is not None


@final
class Probes:
    """The panel of probes of one run.

    Args:
        watch: What the probes may know; kept up to date here.
        kinds: The probe classes, usually `memguard.probes.PROBES`.
        on_failure: Told (probe name, error) when a probe is switched off; must not keep the error.

    Attributes:
        seconds: Own time so far, all events together.
    """

    def __init__(
        self,
        watch: Watch,
        kinds: Sequence[type[Probe]],
        *,
        on_failure: Callable[[str, Exception], None] | None = None,
    ) -> None:
        self.watch = watch
        watch.stem_end = self.stem_end
        self.seconds = 0.0
        self.active = False
        self._in_batch = False
        self._facts: list[Fact] = []
        self._on_failure = on_failure
        self._thread = get_ident()
        self._pid = pid()
        self._stage_batches: dict[Stage, int] = {}
        self._interval = INTERVAL
        self._batch_began = 0.0
        self._own_before = 0.0
        self._probes: list[Probe] = []
        for kind in kinds:
            try:
                self._probes.append(kind(watch, self._facts.append))
            except Exception as error:
                self._tell(kind.name, error)
        self._dense: dict[str, list[tuple[Probe, Callable[..., None]]]] = {}
        self._always: dict[str, list[tuple[Probe, Callable[..., None]]]] = {}
        self._wire()

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
        probes, self._probes = self._probes, []
        self._wire()
        for probe in probes:
            try:
                probe.remove()
            except Exception as error:
                self._tell(probe.name, error)

    def take(self) -> list[Fact]:
        """The facts since the last call, oldest first."""
        facts = self._facts[:]
        self._facts.clear()
        return facts

    def add_model(self, model: nn.Module) -> None:
        """Watches one more root model; a second call with the same one does nothing."""
        if self.watch.add_model(model):
            self._emit("on_model", model)

    def stage_start(self, stage: Stage) -> None:
        """A stage begins."""
        self.watch.stage = stage
        self._emit("on_stage_start", stage)

    def stage_end(self, stage: Stage) -> None:
        """A stage is over."""
        self._emit("on_stage_end", stage)
        self.watch.stage = Stage.OTHER

    def batch_start(self, *, batch: int, stage: Stage) -> None:
        """A batch begins; decides whether it is looked at.

        Args:
            batch: Number of the record this batch will become.
            stage: What the loop is doing.
        """
        watch = self.watch
        watch.batch, watch.stage = batch, stage
        self._in_batch = True
        watch.batches += 1
        self._thread = get_ident()
        nth = self._stage_batches.get(stage, 0)
        self._stage_batches[stage] = nth + 1
        self.active = nth < DENSE_BATCHES or batch <= watch.dense_until or nth % self._interval == 0
        self._batch_began = time.perf_counter()
        self._own_before = self.seconds
        self._emit("on_batch_start")

    def forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """A root model is called."""
        self._emit("on_forward_start", module, args, kwargs)

    def forward_end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """A root model has answered."""
        self._emit("on_forward_end", module, args, output)

    def stem_end(self, module: nn.Module, output: object) -> None:
        """The model's stem has answered; its hook calls this, integrations need not."""
        self._emit("on_stem_end", module, output)

    def backward_start(self, loss: torch.Tensor) -> None:
        """A backward begins."""
        self._emit("on_backward_start", loss)

    def backward_end(self) -> None:
        """A backward is over."""
        self._emit("on_backward_end")

    def optimizer_step_start(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to step."""
        self.watch.add_optimizer(optimizer)
        self._emit("on_optimizer_step_start", optimizer)

    def optimizer_step_end(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has stepped; counted here."""
        self.watch.optimizer_steps += 1
        self._emit("on_optimizer_step_end", optimizer)

    def batch_end(self, record: BatchRecord | None = None) -> None:
        """The batch is over; call it after the record's numbers were read, and pass it on."""
        self.watch.record = record
        self._emit("on_batch_end")
        self._in_batch = False
        if self.active:
            self._adapt(time.perf_counter() - self._batch_began, self.seconds - self._own_before)
            self.active = False

    def exception(self, error: BaseException) -> None:
        """The step failed."""
        self._emit("on_exception", error)

    def _emit(self, event: str, *args: Any) -> None:
        heard = self.active or (event in _FORWARDS and not self._in_batch)
        listeners = self._dense[event] if heard else self._always[event]
        if not listeners or in_transform() or get_ident() != self._thread or pid() != self._pid:
            return
        began = time.perf_counter()
        for probe, listener in listeners:
            try:
                listener(*args)
            except Exception as error:
                self._switch_off(probe, error)
        self.seconds += time.perf_counter() - began

    def _adapt(self, batch_seconds: float, own_seconds: float) -> None:
        """Looks less often where looking costs more than its share; one dear batch (a naming) does not count."""
        share = own_seconds / self._interval / max(batch_seconds, 1e-9)
        if share > MAX_SHARE and own_seconds < 1e-3 and self._interval < MAX_INTERVAL:
            self._interval *= 2
        elif share < MAX_SHARE / 4 and self._interval > INTERVAL:
            self._interval //= 2

    def _wire(self) -> None:
        self._dense = {event: [] for event in EVENTS}
        self._always = {event: [] for event in EVENTS}
        for probe in self._probes:
            for event in EVENTS:
                if getattr(type(probe), event) is getattr(Probe, event):
                    continue
                listener = getattr(probe, event)
                self._dense[event].append((probe, listener))
                if event in probe.always or event in ("on_model", "on_stage_start", "on_stage_end", "on_exception"):
                    self._always[event].append((probe, listener))

    def _switch_off(self, probe: Probe, error: Exception) -> None:
        self._probes = [other for other in self._probes if other is not probe]
        self._wire()
        try:
            probe.remove()
        except Exception:
            pass
        self._tell(probe.name, error)

    def _tell(self, name: str, error: Exception) -> None:
        _log.warning("memguard's probe %r failed and is switched off: %s: %s", name, type(error).__name__, error)
        if self._on_failure is not None:
            self._on_failure(name, error)
