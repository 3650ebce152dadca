"""The interface of a probe: one look at live objects, in microseconds, that yields plain facts."""

from __future__ import annotations

import re
import weakref
from abc import ABC
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypedDict

import torch
from torch import nn

from memguard.evidence.graph_tracker import GraphTracker
from memguard.evidence.naming.holders import Holder, HolderSearch
from memguard.evidence.other_threads import OtherThreads
from memguard.records.facts import Fact
from memguard.records.stats import BatchRecord, MemoryStats, Stage


class AllocationHistory(Protocol):
    """Somebody who can write down each allocation's stack (`torch.cuda.memory`, the virtual GPU)."""

    @property
    def records_history(self) -> bool:
        """Whether it is on now, for whomever."""

    def record_history(self, enabled: bool, max_entries: int) -> None:
        """Switches it on or off."""

    def snapshot(self) -> dict[str, Any]:
        """The trace so far, in PyTorch's snapshot format."""


class StorageUse(Protocol):
    """What operators did with one storage, by the clock of `StorageUses`; it stays readable when that is gone."""

    nbytes: int
    born: int
    used: int
    """When one last took it."""
    reads: int
    """How many took it and did not give it back."""

    def __call__(self) -> object | None:
        """The storage, if it is alive."""


class StorageUses(Protocol):
    """Somebody who sees what every operator takes: the virtual GPU."""

    clock: int

    def alive(self) -> Sequence[StorageUse]:
        """Those of all storages."""

    def find(self, tensor: torch.Tensor) -> StorageUse | None:
        """That of a tensor's storage."""


class Now(TypedDict):
    """When a fact was found."""

    batch: int
    stage: Stage


@dataclass(slots=True)
class ProbeContext:
    """What probes may know of the run. `ProbeDispatcher` keeps the counts; the integration fills the rest once.

    Models and optimizers are held weakly: a model that the user drops is gone.
    """

    device: str = "cpu"
    """The guarded device in PyTorch's writing; ``"virtual:24GiB"`` for the virtual GPU."""
    device_total_bytes: int | None = None
    lightning: bool = False
    """Whether Lightning drives the loop (and so decides when gradients are zeroed)."""
    compiled: bool = False
    """Whether a watched model is compiled: then only its outermost module is hooked."""
    read: Callable[[], MemoryStats] = MemoryStats
    """One look at the device, without consequences (the backend's `read`)."""
    history: AllocationHistory | None = None
    """Who can write down each allocation's stack, where the option allows it (`memguard.evidence.peaks.history`)."""
    uses: StorageUses | None = None
    """Who sees what operators take, where the device does."""
    stem_end: Callable[[nn.Module, object, object], None] = lambda module, args, output: None
    """Where the stem's hook reports; set by `ProbeDispatcher`."""
    request_attention: Callable[[], None] = lambda: None
    """Called where batches may be about to pass that nobody would look at, and somebody wants to after all."""
    resubscribe: Callable[..., None] = lambda *events: None
    """Told the names of events that a probe begins or ceases to hear; set by `ProbeDispatcher`."""
    extra_roots: Callable[[], Iterable[tuple[str, object]]] = lambda: ()
    """Objects besides frames and models where a holder may hang: ("trainer", trainer), callbacks, metrics. Asked for
    only when something is to be named, so nothing is held."""
    differentiates: Callable[[nn.Module], bool] = lambda model: False
    """Whether a model's forward takes a derivative inside itself, told from its code; costs milliseconds."""
    find_record: Callable[[], BatchRecord | None] = lambda: None
    """Works out the newest record: `Recorder.newest`."""
    line: Callable[[str, dict[str, Any]], None] = lambda kind, data: None
    """Writes a line of a kind into the recording: `Recorder.line`."""
    stage: Stage = Stage.OTHER
    batch: int = 0
    """Number of the current record."""
    batches: int = 0
    """Batches begun so far, all stages."""
    optimizer_steps: int = 0
    trains_nothing: bool = False
    """Whether models are called in training mode so often, and nothing else, that it is taken for evaluation."""
    dense_until: int = 0
    """Batch number up to which every batch is looked at, whatever the sampling says."""
    forced_until: int = 0
    """The same, whatever it costs."""
    due: int | None = None
    """The first training batch with this number or a higher one is sampled, however much that costs."""
    number: int = 0
    """How many batches of its stage came before the open one; on the fast path, before the last sampled one."""
    rose: int | None = None
    """Batch after which the floor of training was last seen to rise, and close looks were asked for."""
    rises_since: int = 0
    """About the batch from which on it did; 0 where that was not seen."""
    retained: set[int] = field(default_factory=set)
    """Models whose graphs of evaluation were told as kept alive: nobody will use them, though they do not die."""
    carried: set[int] = field(default_factory=set)
    """Those of them whose graphs a carried state keeps: told as that, and not as an evaluation besides."""
    chained: set[int] = field(default_factory=set)
    """Models in training mode whose graphs a carried state keeps: told as that, and not as a frozen model besides."""
    rolled_out: set[tuple[str | None, str | None]] = field(default_factory=set)
    """Functions (file, name) that were told as rolling a model out: what else hangs on its graph comes of that."""
    evaluated: set[int] = field(default_factory=set)
    """Models whose graphs of evaluation, though kept, were told as that: not as a carried state besides."""
    doubted: set[int] = field(default_factory=set)
    """Models in training of which some graphs died unused: whether backwards enter their graphs is always asked."""
    calling: set[tuple[str, int]] = field(default_factory=set)
    """Functions (file, first line) that were seen to call a model while graphs piled up."""
    jumps: int = 0
    """Times that training came to keep as much more as a model's weights take: a copy of them may have come."""
    facts: dict[tuple[object, ...], Fact] = field(default_factory=dict)
    """The newest fact of each kind about each holder."""
    pinned: list[frozenset[int]] = field(default_factory=list)
    """Storages (their keys) that were told as pinned by small views, those of one holder together."""
    ledger: GraphTracker = field(default_factory=GraphTracker)
    """The graphs of all forwards; kept by the marks probe."""
    elsewhere: OtherThreads = field(default_factory=OtherThreads)
    """Graphs that other threads build; told of forwards by the integration."""
    generators: list[weakref.ref[Any]] = field(default_factory=list)
    """Suspended generators of the user's, which may hold what they gave out; kept by the generators probe."""
    datasets: list[weakref.ref[Any]] = field(default_factory=list)
    """What loaders read from just then; likewise."""
    _models: list[weakref.ref[nn.Module]] = field(default_factory=list)
    _optimizers: list[weakref.ref[torch.optim.Optimizer]] = field(default_factory=list)
    _expected: list[weakref.ref[torch.optim.Optimizer]] = field(default_factory=list)
    """Those that were named before their first step."""

    @property
    def now(self) -> Now:
        """The batch and the stage, for a fact."""
        return {"batch": self.batch, "stage": self.stage}

    def learn(self, fact: Fact) -> None:
        """Remembers a reported fact about a holder, so that it can be measured again."""
        place = fact.place
        if place.holder is not None:
            self.facts[type(fact), place.file, place.line, place.holder] = fact

    @property
    def record(self) -> BatchRecord | None:
        """The newest record, in `on_batch_end` that of the open batch; asked for only where it matters."""
        return self.find_record()

    @property
    def peak_bytes(self) -> int | None:
        """The allocated peak of that record; None where nobody counts."""
        record = self.record
        return record.allocated_peak_bytes if record is not None else None

    def roots(self) -> list[tuple[str, object]]:
        """Objects by name, besides frames and models, where a holder may hang."""
        alive = [(f"generator {number}", ref()) for number, ref in enumerate(self.generators)]
        alive += [("dataset", ref()) for ref in self.datasets]
        return [*self.extra_roots(), *((name, one) for name, one in alive if one is not None)]

    def search(self) -> HolderSearch:
        """A walk over everything in reach, to be asked who holds what. Holds what it met: drop it at once."""
        return HolderSearch(models=self.models, extra=self.roots(), stage=self.stage, calling=self.calling)

    @property
    def models(self) -> list[nn.Module]:
        """The watched root models that are still alive."""
        return [model for ref in self._models if (model := ref()) is not None]

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizers seen so far that are still alive."""
        return [optimizer for ref in self._optimizers if (optimizer := ref()) is not None]

    def add_model(self, model: nn.Module) -> bool:
        """Watches one more root; whether it is new."""
        if any(ref() is model for ref in self._models):
            return False
        self._models = [ref for ref in self._models if ref() is not None] + [weakref.ref(model)]
        return True

    def expect_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Notes an optimizer that has not stepped yet: its first step is still told as that of a new one."""
        if self.add_optimizer(optimizer):
            self._expected.append(self._optimizers[-1])

    def add_optimizer(self, optimizer: torch.optim.Optimizer) -> bool:
        """Notes one more optimizer, which is about to step; whether it is new."""
        for ref in self._optimizers:
            if ref() is optimizer:
                if not self._expected:  # as nearly always
                    return False
                before, self._expected = self._expected, [one for one in self._expected if one is not ref]
                return len(before) > len(self._expected)
        self._optimizers = [ref for ref in self._optimizers if ref() is not None] + [weakref.ref(optimizer)]
        return True

    def look_closely(self, batches: int, *, surely: bool = False) -> None:
        """Asks for dense looks during the next batches: something was seen that may become a finding.

        Args:
            batches: How many.
            surely: Whatever they cost; else as long as memguard keeps to its share of the run's time.
        """
        self.dense_until = max(self.dense_until, self.batch + batches)
        if surely:
            self.forced_until = max(self.forced_until, self.batch + batches)
        self.request_attention()

    def look_from(self, number: int) -> None:
        """Asks for a look at the first training batch to come that has this number, or a higher one."""
        self.due = number if self.due is None else min(self.due, number)
        self.request_attention()


class Probe(ABC):
    """One kind of look. A subclass overrides the events it needs; the rest cost nothing.

    Every event returns at once, keeps no tensor, frame or exception alive, and tells what it saw through `report`. An
    exception switches this probe off, never the training. Events arrive on the thread that trains, and only in batches
    that are looked at (all of the first 64 of each stage, then 1 in 16); those named in `always` arrive in every batch.
    """

    name: ClassVar[str]
    """For the log when the probe is switched off: that of the class in words."""
    always: ClassVar[frozenset[str]] = frozenset()
    """Names of the events that this probe needs even in batches that are not sampled."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = re.sub(r"(?<!^)(?=[A-Z])", " ", cls.__name__.removesuffix("Probe")).lower()

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        self.watch = watch
        self.report = report
        self.deaf: frozenset[str] = frozenset()
        """Names of the events that are not to arrive for now."""
        self._prepare()

    def _prepare(self) -> None:  # noqa: B027
        """What a probe begins with: its own state, and the events that it need not hear yet."""

    def unsubscribe(self, *events: str) -> None:
        """These events are not delivered any more."""
        if not self.deaf.issuperset(events):
            self.deaf |= frozenset(events)
            self.watch.resubscribe(*events)

    def hear(self, *events: str) -> None:
        """These events are delivered again."""
        if not self.deaf.isdisjoint(events):
            self.deaf -= frozenset(events)
            self.watch.resubscribe(*events)

    def holders(
        self,
        judge: Callable[[torch.Tensor], int | None],
        *,
        graph: bool,
        passes: Callable[[torch.Tensor, Collection[torch.Tensor]], bool] | None = None,
        collector: bool | None = True,
        stage: Stage | None = None,
        rest: Callable[[Iterable[torch.Tensor]], None] | None = None,
    ) -> tuple[Holder, ...]:
        """Who holds the tensors that a judge recognises, as in `HolderSearch.find`; None asks the collector alone."""
        watch, walk = self.watch, collector is not None
        search = HolderSearch(models=watch.models, extra=watch.roots(), calling=watch.calling, walk=walk)
        return search.find(judge, stage=stage, graph=graph, passes=passes, collector=collector is not False, rest=rest)

    def install(self) -> None:  # noqa: B027 - most probes install nothing
        """Puts in place what the probe needs in the process (a gc callback)."""

    def remove(self) -> None:  # noqa: B027
        """Takes away what `install` and all events put in place (hooks, callbacks)."""

    def on_model(self, model: nn.Module) -> None:  # noqa: B027
        """A root model is watched from now on."""

    def on_optimizer(self, optimizer: torch.optim.Optimizer) -> None:  # noqa: B027
        """An optimizer is about to make the first step that is seen of it."""

    def on_stage_start(self, stage: Stage) -> None:  # noqa: B027
        """A stage begins."""

    def on_stage_end(self, stage: Stage) -> None:  # noqa: B027
        """A stage is over."""

    def on_batch_start(self) -> None:  # noqa: B027
        """A batch begins; `watch.stage` and `watch.batch` are its own."""

    def on_forward_start(  # noqa: B027
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        """A root model is called."""

    def on_forward_end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:  # noqa: B027
        """A root model has answered; the output is None where it failed."""

    def on_forward_in_handler(self) -> None:  # noqa: B027
        """A root model is called while an error is being handled; in every batch."""

    def on_stem_end(self, module: nn.Module, output: object) -> None:  # noqa: B027
        """The first leaf module whose output requires grad has answered (every graph of the model is above it)."""

    def on_backward_start(self, loss: torch.Tensor) -> None:  # noqa: B027
        """A backward begins, where the integration can tell (Lightning)."""

    def on_loss(self, loss: torch.Tensor) -> None:  # noqa: B027
        """A backward begins; of a plain loop too, which is listened to while a probe hears this."""

    def on_backward_end(self) -> None:  # noqa: B027
        """A backward is over, where the integration can tell."""

    def on_optimizer_step_start(self, optimizer: torch.optim.Optimizer) -> None:  # noqa: B027
        """An optimizer is about to change weights."""

    def on_optimizer_step_end(self, optimizer: torch.optim.Optimizer) -> None:  # noqa: B027
        """An optimizer has changed weights; `watch.optimizer_steps` counts it already."""

    def on_returned(self, output: object) -> None:  # noqa: B027
        """The user's step has returned, where the integration can tell (Lightning)."""

    def on_batch_end(self) -> None:  # noqa: B027
        """The batch is over; findings that need a walk over live objects are made here."""

    def on_records(self, records: Sequence[BatchRecord]) -> None:  # noqa: B027
        """Records were made: in batches that are not looked at up to half a second after their end, in order."""

    def on_exception(self, error: BaseException) -> None:  # noqa: B027
        """The step failed; the error is not to be kept."""

    def on_run_end(self) -> None:  # noqa: B027
        """The run is over: what was told is counted once more, from the last look at it."""


EVENTS: tuple[str, ...] = tuple(name for name in vars(Probe) if name.startswith("on_"))
"""Every event a probe can hear."""
