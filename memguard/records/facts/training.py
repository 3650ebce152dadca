"""Facts about the training: gradients, optimizer, precision, inputs."""

from __future__ import annotations

from dataclasses import dataclass

from memguard.records.facts.fact import Fact


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
    upcast: bool = False
    """Whether they were made in half precision and copied to float32: then `extra_bytes` is what all tensors of such a
    copy's size take at the peak."""
    peak_bytes: int | None = None
    saved_bytes: int | None = None
    """How much lower the peak is in a replay of the batch in which all that has the logits' size comes in slices."""
    fused_losses: tuple[str, ...] = ()
    """Losses that work so, of what is installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCalled(Fact):
    """Where a stage calls a model for the first time: what an allocator's numbers are the doing of."""


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
    samples: str | None = None
    """The dataset's attribute that tells."""
