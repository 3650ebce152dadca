"""Facts about tensor storages on the device, and about what keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from memguard.records.facts.fact import Fact

OF_BATCHES: Final = "tensors of {count} batches"
"""In `KeptOutputs.what`: it counts batches, of each of which there may be several elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOutputs(Fact):
    """Detached outputs or derived tensors of many batches are alive."""

    tensors: int
    """Elements, or batches, that have come; of each there may be several tensors, and then `what` says so."""
    first_batch: int
    bytes: int
    bytes_per_batch: float
    batches_left: int | None = None
    """Batches of this stage's pass still to come, where known."""
    bounded: bool = True
    """Whether the source empties or limits what holds them, as far as it shows."""
    learned_from: bool = False
    """Whether training reads them before they are let go, as it does a roll-out."""
    what: str | None = None
    """What they are, in words, where they are no plain number of tensors or a library keeps them.

    ``{count}`` stands for their number."""
    remedy: str | None = None
    """How to have the library keep them elsewhere."""
    numbers: bool = False
    """Whether each is one number, with the storage of what it was computed from: as ``mse_loss`` gives it."""
    beside: tuple[str, ...] = ()
    """Other names that statements next to this one fill: their tensors are counted here."""
    cached: bool = False
    """Whether what holds them is a cache, as far as the source shows: it is filled for want of a key, and read back."""
    weights: bool = False
    """Whether they are parameters of models that are kept, and nothing else."""
    capacity: int | None = None
    """How many elements there can be, as far as its maxlen or the source tells."""
    measured: bool = False
    """Whether it was seen, at several looks, to keep at least half of what the floor of memory rose by."""
    parts: tuple[str, ...] = ()
    """Other names that were told of, and whose memory is a part of what it keeps."""
    outlasts: bool = False
    """Whether training found it as large after the pass of evaluation that filled it."""
    candidate: bool = False
    """Whether it counts only where, as the run ends, nothing else explains the growth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewsPinStorage(Fact):
    """Small views keep large storages alive."""

    views: int
    used_bytes: int
    pinned_bytes: int
    grows: bool = False
    """Whether there is one more with every batch, and nothing in the source limits them."""
    since: int = 0
    """About the batch from which on they came, where memory began to rise later than the training."""

    @property
    def kept_bytes(self) -> int:
        """Of the storages, not of what the views show."""
        return self.pinned_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousOutputsAlive(Fact):
    """Outputs of the batch before are alive while the next forward runs."""

    bytes: int
    peak_in_forward: bool | None = None
    """Whether the batch's peak came in the forward, where they add to it; None where peaks cannot be told apart."""
    until_backward: bool = False
    """Whether they were still there when the backward began: then they added to its peak too."""
    until_peak: bool = False
    """Whether the batch's peak came before they went, in the forward or after it."""
    peak_bytes: int | None = None
    """The batch's highest allocated bytes; None where nobody counts them."""
    steady: bool = False
    """Whether the source shows that it is so in every batch."""
    beside: tuple[str, ...] = ()
    """Other variables of that function that hold the same: it is free when all of them let go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadStorages(Fact):
    """Storages went that no operator had read since several forwards of training; told when they are gone."""

    bytes: int
    forwards: int
    """Forwards of training that they were kept through; within a step the micro-batches that made them."""
    within_step: bool = False
    """Whether micro-batches of that step made them."""
    peak_bytes: int | None = None
    """The allocated peak of the batch in which they were found."""
    inside: str | None = None
    """What of the object under that name has them, like ``"answer.past_key_values"``."""
    numbers: bool = False
    """Whether each is one number, with the storage of what it was computed from: as ``mse_loss`` gives it."""
    remedy: str | None = None
    """What to change in the hooks that put them aside, where such hooks do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeLocals(Fact):
    """Large locals of user functions alive at the peak, the optimizer step or the backward, not read again."""

    names: tuple[str, ...]
    bytes: int
    peak_bytes: int | None = None
    """The highest allocated bytes of the batch, if nothing read them since before its forward."""
    at: str = "optimizer step"
    """What runs while they are alive: that, the backward, or a line."""


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
    trained: bool = False
    """Whether each is a model that is trained beside the watched one: no copy, but as large."""
    alike: bool = False
    """Whether some may be no copies: tensors of the weights' shapes, as perturbations and fast weights are too."""
    limited: bool = False
    """Whether they lie in a container that takes no more than so many."""
    gathered: bool = False
    """Whether they were gathered from the ranks, each of which keeps only its part of the model."""
    changing: bool = True
    """Whether the averages among them are known to change, as one does, and not by their names alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatheredWeights(Fact):
    """Weights of a sharded model stay whole from one optimizer step to the next; the place is where it is called."""

    parameters: int
    bytes: int
    name: str | None = None
    """What holds the model, like ``"Trainer.reference"``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointKept(Fact):
    """A checkpoint was loaded onto the device and its tensors are still alive batches later."""

    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowingParameters(Fact):
    """What an optimizer steps on becomes more with every batch."""

    parameters: int
    """New ones."""
    batches: int
    """In which they came."""
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SurvivingAllocations(Fact):
    """A line whose allocations outlive the batches that made them, from the allocation history."""

    bytes: int
    batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReboundTensor(Fact):
    """A tensor was made while the one of the same name and size was still alive, and replaced it."""

    bytes: int
    model: bool = False
    """Whether it is a whole model, with its gradients and the state of its optimizer besides."""
