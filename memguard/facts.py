"""What probes saw of live objects, as plain data: the evidence that detectors judge beside the records."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from memguard.stats import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A line of the user's code, and the name that holds something there."""

    file: str | None = None
    """Absolute path."""
    line: int | None = None
    function: str | None = None
    holder: str | None = None
    """Like ``history`` or ``LitModel.outputs``."""
    source: str | None = None
    """The statement, as it stands in the file."""


NOWHERE = Place()
"""The place of what could not be named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One thing a probe saw. Each kind is a frozen dataclass of its own, with numbers, texts and places only."""

    batch: int
    """Record number at which it was seen."""
    stage: Stage = Stage.OTHER
    place: Place = NOWHERE
    """Where the user's code causes it, as far as it was found."""


# Autograd graphs


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedGraphs(Fact):
    """Graphs of several earlier batches are alive although they served their time."""

    graphs: int
    """Batches of which a graph is alive."""
    first_batch: int
    last_batch: int
    optimizer_steps: int
    """Steps that the youngest of them survived; 0 in evaluation, where none is made."""
    bytes: int | None = None
    """What the graphs hold on the device: saved tensors and the kept tensors themselves."""
    backward: bool = True
    """Whether a backward ran through them (then their saved tensors are gone, and what is left is mostly host RAM)."""
    carried: bool = False
    """Whether each new graph reaches the older ones: a state goes from batch to batch."""
    node: str | None = None
    """Name of a graph node where they were found; all that is known of something held from C++."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedAfterBackward(Fact):
    """A graph still holds its saved tensors after backward, at the start of the next forward."""

    bytes: int
    tensors: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientsWithGraph(Fact):
    """Gradients that carry a graph themselves: ``backward(create_graph=True)``."""

    parameters: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionContextHolds(Fact):
    """A custom autograd.Function keeps tensors as attributes of its ctx, outside save_for_backward."""

    function_name: str
    attributes: tuple[str, ...]
    bytes: int
    cycle: bool
    """Whether one of them is the function's own output: only the garbage collector frees that."""
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedGraphs(Fact):
    """Forwards built graphs in vain: they died without any backward, or their gradients have no taker."""

    module: str
    """Class of the model."""
    count: int
    """Unused graphs so far."""
    forwards: int
    bytes: int | None = None
    """What one such graph held."""
    frozen: bool = False
    """Whether the model serves a training step from the side: a teacher, a reference model."""
    prevented: bool = False
    """Whether the validation guard ran it without a graph from then on."""
    training: bool = False
    """Whether the model was in training mode: ``eval()`` was forgotten as well."""
    gradients_bytes: int | None = None
    """Gradients of weights that no optimizer holds, where a backward did run."""


# Storages


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOutputs(Fact):
    """Detached outputs or derived tensors of many batches are alive."""

    tensors: int
    first_batch: int
    bytes: int
    bytes_per_batch: float
    batches_left: int | None = None
    """Batches of this stage's pass still to come, where known."""
    survived_epochs: int = 0
    """Ends of the stage's pass that they survived."""
    metric: str | None = None
    """Class of the metric whose state they are."""
    bounded: bool = True
    """Whether the source empties or limits what holds them, as far as it shows."""
    what: str | None = None
    """What they are, where a library keeps them: in words."""
    remedy: str | None = None
    """How to have the library keep them elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewsPinStorage(Fact):
    """Small views keep large storages alive."""

    views: int
    used_bytes: int
    pinned_bytes: int
    grows: bool = False
    """Whether there is one more with every batch, and nothing in the source limits them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousOutputsAlive(Fact):
    """Outputs of the batch before are alive while the next forward runs."""

    bytes: int
    graph: bool
    """Whether a graph with saved tensors hangs on them."""
    peak_in_forward: bool | None = None
    """Whether the batch's peak came in the forward, where they add to it; None where peaks cannot be told apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeLocals(Fact):
    """Large locals of user functions alive at the optimizer step though not read again."""

    names: tuple[str, ...]
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCopies(Fact):
    """Further copies of the model's weights on the device."""

    copies: int
    bytes: int
    holders: tuple[str, ...] = ()
    averaged: bool = False
    """Whether the copy is an average of weights that the user asked for (EMA, SWA)."""
    passing: bool = False
    """Whether they end with a function that is called again and again, like a round's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointKept(Fact):
    """A checkpoint was loaded onto the device and its tensors are still alive batches later."""

    bytes: int
    batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowingContainer(Fact):
    """A container that grows with every batch, found by counting twice."""

    elements_per_batch: float
    bytes_per_batch: float | None = None
    kind: str = "list"


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivingAllocations(Fact):
    """A line whose allocations outlive the batches that made them, from the allocation history."""

    allocations: int
    bytes: int
    batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReboundTensor(Fact):
    """A tensor was made while the one of the same name and size was still alive, and replaced it."""

    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOnHost(Fact):
    """A container keeps something in host memory with every batch: arrays, bytes, numbers, tensors on the CPU."""

    elements: int
    """By how many it grew while it was watched."""
    bytes: int
    bytes_per_batch: float
    kind: str = "list"
    bounded: bool = False
    """Whether the source empties or limits it, as far as it shows."""
    from_workers: bool = False
    """Whether tensors in shared memory are among them, as DataLoader workers hand them over."""
    pinned: bool = False
    """Whether tensors in pinned memory are among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedCacheGrows(Fact):
    """PyTorch's cache of pinned memory held more at each look, and at least twice as much as some looks before."""

    bytes: int
    """What it holds."""
    active_bytes: int | None
    """Of this, what is in use."""
    before_bytes: int
    since_batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerObjects(Fact):
    """A dataset that DataLoader workers read keeps Python objects, of which each worker gets a copy of its own."""

    workers: int
    elements: int
    bytes: int
    """What one copy takes."""
    grows: bool = False
    """Whether reading adds to it, as to a cache: what is there is each worker's alone."""


# Python


@dataclass(frozen=True, slots=True, kw_only=True)
class FreedByCollector(Fact):
    """Tensors or graphs that only the cyclic garbage collector freed, or that wait for it."""

    graphs: int
    bytes: int | None
    cycle: str | None = None
    """The cycle in words, like ``Trainer.loss <- Trainer``."""
    outputs: int = 0
    """Inputs, and outputs without a graph, among them."""
    collector_enabled: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionHolds(Fact):
    """An exception keeps the tensors of a failed step: a forward runs inside its handler, or somebody stored it."""

    exception: str
    handling: bool
    """Whether a forward runs while the error is being handled."""
    names: tuple[str, ...]
    bytes: int


# Gradients, optimizer, precision


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleGradients(Fact):
    """The gradients of the last step are alive at the end of the next forward."""

    bytes: int
    zeroed: bool
    """Whether they are zeros: ``zero_grad(set_to_none=False)``; else zero_grad comes after the forward."""
    lightning: bool = False
    """Lightning's own order of calls; not the user's doing."""
    peak_bytes: int | None = None
    """Highest in the batch up to the end of that forward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerStateAhead(Fact):
    """Before its first step, what an optimizer will allocate in it."""

    optimizer: str
    state_bytes: int
    temporary_bytes: int
    """What the step itself holds for a moment (foreach)."""
    allocated_bytes: int | None = None
    """Allocated just before the step."""
    peak_bytes: int | None = None
    """Highest in the batch up to the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeLogits(Fact):
    """A root output with a very wide last dimension, and what the loss adds to it."""

    logits_bytes: int
    float32_bytes: int
    """Of the same tensor in float32."""
    width: int
    dtype: str
    peak_after_forward: bool | None = None
    """Whether the peak came after the model's forward, in the loss or the backward's beginning."""
    extra_bytes: int | None = None
    """How far the peak rose above the end of the forward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutocastOpen(Fact):
    """An autocast region is open between two batches."""

    batches: int
    bytes: int | None = None
    """Size of the weights' casts that it can keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSize(Fact):
    """How much a batch brings in; told when it is a new extreme or while the line is being learned."""

    elements: int
    largest_elements: int | None = None
    """Of the largest batch to come, where the dataset or sampler tells."""


# Allocator, device, process


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyCacheCalls(Fact):
    """Calls of empty_cache so far, with the line that makes most of them."""

    calls: int
    batches: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHeld(Fact):
    """Memory that Python freed and another stream still holds."""

    bytes: int
    batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledGraphs(Fact):
    """Graphs compiled so far, and what their private pools reserve."""

    graphs: int
    pools: int = 0
    pool_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherDevice(Fact):
    """Memory of this process on a device that is not its own."""

    device: str
    own_device: str
    bytes: int
    model: bool = False
    """Whether the model itself is there, as where nobody called ``set_device``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanOutOfMemory(Fact):
    """An allocation found no memory, and its post-mortem says why."""

    cause: str
    """`memguard.postmortem.Cause`, by its value."""
    why: str
    """The cause in words, with its evidence."""
    advice: str
    """What helps most."""
    bytes: int | None = None
    """What would be free without it."""
    holder: str | None = None
    """The optimizer's class, where its state is the cause."""
    caught: bool = False
    """Whether the program caught the error and went on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPeaks(Fact):
    """The peaks of the ranks of one run."""

    peaks: tuple[tuple[int, int], ...]
    """(rank, peak of allocated bytes)."""


KINDS: dict[str, type[Fact]] = {kind.__name__: kind for kind in Fact.__subclasses__()}
"""Every kind of fact, by its name in files."""


def to_json(fact: Fact) -> dict[str, Any]:
    """A fact as JSON data, its kind under ``fact``."""
    return {"fact": type(fact).__name__, **asdict(fact), "stage": fact.stage.value}


def from_json(data: dict[str, Any]) -> Fact | None:
    """The fact that `to_json` wrote; unknown keys are left out, an unknown kind is None.

    Raises:
        TypeError, ValueError: The data lacks a field of its kind, or has no fact at all.
    """
    kind = KINDS.get(str(data.get("fact")))
    if kind is None:
        return None
    known = {field.name: _tuples(data[field.name]) for field in fields(kind) if field.name in data}
    known["stage"] = Stage(known.get("stage", Stage.OTHER.value))
    place = data.get("place") or {}
    known["place"] = Place(**{key: value for key, value in place.items() if key in Place.__dataclass_fields__})
    return kind(**known)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
