"""The scene of an out-of-memory error as plain data: the evidence of a post-mortem."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from memguard.records.facts import NOWHERE, Place
from memguard.records.findings import Finding
from memguard.records.phases import OpenPhase
from memguard.records.stats import BatchRecord, SlowStats, Stage

OWNERS: tuple[str, ...] = (
    "parameters",
    "buffers",
    "gradients",
    "optimizer_state",
    "activations",
    "temporaries",
    "outputs",
    "other",
)
"""Every kind of owner: ``activations`` are saved for a backward, ``temporaries`` are local variables of running code,
``outputs`` are tensors that something else keeps, ``other`` is what no Python object shows (rounding, workspaces)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The allocation that failed, and the memory there was for it. None is unknown."""

    requested_bytes: int | None = None
    """What the driver was asked for, as PyTorch's text says it."""
    limit_bytes: int | None = None
    """What this process may take of the device."""
    free_bytes: int | None = None
    """What the driver still had."""
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    pieces_bytes: int | None = None
    """Free inside the allocator, in pieces beside blocks in use."""
    largest_piece_bytes: int | None = None
    private_free_bytes: int | None = None
    """Free in private pools (a CUDA graph's, a ``torch.cuda.MemPool``): no request outside of them gets it."""
    largest_private_bytes: int | None = None
    """The largest piece of that."""
    others: tuple[tuple[int, int | None], ...] = ()
    """Other processes on the device: (pid, bytes)."""
    others_bytes: int | None = None
    """What other processes hold together."""

    @property
    def shortage_bytes(self) -> int:
        """How much less memory in use would have let the request fit, were nothing fragmented; at least 1."""
        if self.requested_bytes is None or self.allocated_bytes is None:
            return 1
        if self.free_bytes is None or self.pieces_bytes is None:
            return max(self.requested_bytes + self.allocated_bytes - (self.limit_bytes or 0), 1)
        return max(self.requested_bytes - self.free_bytes - self.pieces_bytes, 1)


class Event(NamedTuple):
    """A block that a tensor took, or gave back."""

    block: int
    """Its address: another block may have it later."""
    nbytes: int
    shape: tuple[int, ...]
    """Of the first tensor that showed the block's storage."""
    frees: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """What the newest batches asked of the device, in the order in which they did."""

    live: tuple[Event, ...]
    """The blocks in use when memory ran out."""
    batches: tuple[tuple[Event, ...], ...] = ()
    """Finished batches, oldest first."""
    before: tuple[Event, ...] = ()
    """Of the failing batch, up to the first call of a model."""
    events: tuple[Event, ...] = ()
    """Of the failing batch, from there on."""
    wanted: Event | None = None
    """The block that the device did not have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopTensor:
    """One of the largest tensors that were alive, or several that are equal in all that is known."""

    name: str
    owner: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    """Of one of them."""
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopLine:
    """A line of the program, and what it allocated or the variables of its function hold: each byte in one line."""

    file: str | None
    line: int | None
    function: str | None
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldModel:
    """A root model with weights on the device."""

    name: str
    """Class of the model."""
    bytes: int
    """Parameters, buffers, gradients and optimizer state."""
    current: bool
    """Whether it is the one that was being trained or called."""
    holder: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTensors:
    """A variable that holds many tensors, or a graph of many batches."""

    place: Place
    tensors: int
    bytes: int
    graph: bool
    """Whether most of the bytes hang on autograd graphs."""
    attached: bool = False
    """Whether a tensor of it was not detached, so that it keeps its graph, or what a backward left of it."""
    feeds: str | None = None
    """``"carried"`` where its last value goes into the next (a recurrent state), ``"added"`` where it is a total."""
    most: int | None = None
    """How many it will ever hold (a deque's maxlen)."""
    reset: str | None = None
    """The object that it belongs to, where that has a method ``reset``: a metric."""
    filling: bool = False
    """Whether the program stood in the loop that adds to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldException:
    """An exception that keeps the tensors of a failed call."""

    exception: str
    handling: bool
    """Whether the program was still inside its handler."""
    names: tuple[str, ...]
    bytes: int
    place: Place = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerUse:
    """An optimizer and its state."""

    name: str
    steps: int
    """Steps that the run made before."""
    stepping: bool
    """Whether it was inside its step."""
    state_bytes: int
    full_state_bytes: int | None
    """What its state will be after the first step; None for a class that is not known."""
    temporary_bytes: int
    """What a step holds for a moment, because it handles all parameters at once (foreach)."""


class Trainable(NamedTuple):
    """A parameter that gets a gradient."""

    shape: tuple[int, ...]
    nbytes: int
    has_gradient: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """What the live objects of the process told."""

    owners: dict[str, int] = field(default_factory=dict)
    """Bytes by owner; together they are the allocated bytes."""
    tensors: tuple[TopTensor, ...] = ()
    lines: tuple[TopLine, ...] = ()
    lines_allocated: bool = False
    """Whether the lines are those that allocated, by a recorded history; else functions stood there that hold it."""
    models: tuple[HeldModel, ...] = ()
    hoards: tuple[KeptTensors, ...] = ()
    exceptions: tuple[HeldException, ...] = ()
    optimizers: tuple[OptimizerUse, ...] = ()
    forward_share: float | None = None
    """How much of the current model's parameters the graph had reached."""
    trainable_bytes: int = 0
    """Parameters of the current model that get gradients."""
    gradient_bytes: int = 0
    """Gradients of the current model that exist already."""
    float32_activation_bytes: int = 0
    largest_activation_bytes: int = 0
    training: bool | None = None
    """Mode of the current model."""
    grad_enabled: bool = True
    trainable: tuple[Trainable, ...] = ()
    """Parameters of the current model that get gradients."""
    layers: int = 0
    """Leaf modules with parameters in the current model."""
    site: Place = NOWHERE
    """The line that asked."""
    call_site: Place = NOWHERE
    """The user's line that called the model whose forward asked."""
    unused: bool | None = None
    """Whether no backward will use the failing forward, by the source of the functions that run; None is unknown."""
    inputs: tuple[tuple[int, ...], ...] = ()
    """Shapes of the tensors that the failing model was called with."""
    phase: str | None = None
    """"forward", "backward" or "optimizer step"."""
    batching: Place = NOWHERE
    """What makes the batches: a loader, a sampler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The run's own trace under another configuration of the allocator."""

    conf: str
    fits: bool
    reserved_peak_bytes: int
    events: int
    batches: int | None = None
    """How many batches the trace covers, the failing one included; None where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything known when memory ran out."""

    device: str
    rank: int = 0
    batch: int = 0
    stage: Stage = Stage.OTHER
    epoch: int | None = None
    message: str = ""
    request: Request = field(default_factory=Request)
    objects: Objects = field(default_factory=Objects)
    shapes: list[Any] | None = None
    """Input shapes of the failing batch: (name, shape, dtype) each."""
    records: tuple[BatchRecord, ...] = ()
    """The newest records, oldest first."""
    shapes_of: dict[int, list[Any]] = field(default_factory=dict)
    """The run's table of shapes."""
    findings: tuple[Finding, ...] = ()
    replays: tuple[Replayed, ...] = ()
    expandable: bool | None = None
    """Whether the allocator uses expandable segments; None is unknown."""
    expandable_supported: bool = False
    forwards: int = 0
    """Forwards of root models since the last backward or the failing batch's beginning."""
    usual_forwards: int = 0
    """The most forwards that a finished training batch had; 0 before there was one."""
    steps: Steps | None = None
    """What the newest batches asked for; None where no device tells."""
    conf: str = ""
    """The allocator's settings."""
    traced: bool = False
    """Whether the allocation history was on."""
    validation: str = "guard"
    """The option of that name."""
    in_phase: OpenPhase | None = None
    """The phase that was under way, where the program names phases (`memguard.phase`)."""
    host: SlowStats | None = None
    """The host's memory, where that is what ran out."""
