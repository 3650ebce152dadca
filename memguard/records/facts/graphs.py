"""Facts about autograd graphs."""

from __future__ import annotations

from dataclasses import dataclass

from memguard.records.facts.fact import NOWHERE, Fact, Place


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedGraphs(Fact):
    """Graphs of several earlier batches are alive although they served their time."""

    graphs: int
    """Batches of which a graph is alive; forwards where they are `together`."""
    first_batch: int
    last_batch: int
    optimizer_steps: int
    """Steps that the youngest of them survived; 0 in evaluation, where none is made."""
    bytes: int | None = None
    """What the graphs hold on the device: saved tensors and the kept tensors themselves."""
    backward: bool = True
    """Whether a backward ran through them (then their saved tensors are gone, and what is left is mostly host RAM)."""
    saves: bool = False
    """Whether most of the bytes are saved tensors all the same: it ran through another part of the batch."""
    carried: bool = False
    """Whether each new graph reaches the older ones: a state goes from batch to batch."""
    rolled_out: bool = False
    """Whether a trained model was asked in a row, each time for its own last answer, and no backward used it."""
    node: str | None = None
    """Name of a graph node where they were found; all that is known of something held from C++."""
    followed: int = 0
    """Batches of the range whose forwards were followed: of the others nobody knows; 0 where all count already."""
    measured: bool = False
    """Whether the bytes are of all that the holder kept after `batch`, not of the graphs that were counted."""
    counted: bool = False
    """Whether `graphs` are the holder's elements that have one, of which a batch may bring several."""
    deepened: bool = False
    """Whether it is one graph, met twice, of which is known only that it got deeper in between."""
    trains: bool = True
    """Whether the program trains anything, as far as is known: else no graph is for anybody."""
    retained_by: Place = NOWHERE
    """The backward with ``retain_graph=True`` that a carried state made necessary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedAfterBackward(Fact):
    """A graph still holds its saved tensors after backward, at the start of the next forward."""

    bytes: int
    tensors: int
    carried: bool = False
    """Whether the next batch's backward ran through it again: a state leads back into it."""
    part: bool = False
    """Whether a later backward needed another part of the graph: this is what it did not need."""
    same_batch: bool = False
    """Whether that next forward is one of the same batch, before any step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientsWithGraph(Fact):
    """Gradients that carry a graph themselves: ``backward(create_graph=True)``."""

    parameters: int
    bytes: int
    graphs: int = 0
    """Batches whose graphs such gradients keep though their model is gone; 0 where they are those of a model in use."""
    cleared: bool = False
    """Whether the program goes on to take them away, so that they live through the optimizer's step alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionContextHolds(Fact):
    """A custom autograd.Function keeps tensors as attributes of its ctx, outside save_for_backward."""

    function_name: str
    attributes: tuple[str, ...]
    bytes: int
    cycle: bool
    """Whether one of them is the function's own output: only the garbage collector frees that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedGraphs(Fact):
    """Forwards built graphs in vain: they died without any backward, or their gradients have no taker."""

    module: str
    """Class of the model."""
    count: int
    """Unused graphs so far."""
    first_batch: int | None = None
    """The batch that built the first of them, where that is known."""
    bytes: int | None = None
    """What one such graph held."""
    alive: int = 1
    """The most of them that were alive at the same time."""
    alone: bool = False
    """Whether backwards run through other graphs of the same evaluation: an attack's, those of an adaptation."""
    frozen: bool = False
    """Whether the model serves a training step from the side: a teacher, a reference model."""
    kept: bool = False
    """Whether somebody keeps them, so that they do not even die."""
    prevented: bool = False
    """Whether the validation guard ran it without a graph from then on."""
    training: bool = False
    """Whether the model was in training mode: ``eval()`` was forgotten as well."""
    derivative: bool = False
    """Whether the model differentiates inside itself and answers with the derivative's graph (``create_graph``)."""
    gradients_bytes: int | None = None
    """Gradients of weights that no optimizer holds, where a backward did run."""
    dropped: bool = False
    """Whether the step of another model ran through them, and its own took the gradients away before it used any."""
    peak_bytes: int | None = None
    """The allocated peak of the batch before, where that matters; None where the device reports none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchGraphs(Fact):
    """Graphs of micro-batches whose backward had run were alive at a later forward, or when the optimizer stepped."""

    graphs: int
    """Micro-batches, without the last one of the step."""
    of_parts: bool = False
    """Whether these are forwards of several modules, parts of a model that is not called itself."""
    bytes: int
    """What the graphs and the tensors that keep them hold on the device."""
    saves: bool
    """Whether most of that is saved for a backward; else it is the kept tensors themselves."""
    at_step: bool = True
    """Whether the optimizer was about to step; else more micro-batches come before it does."""
    unused: bool = False
    """Whether no backward ever ran through them; else theirs had run."""
    summed: bool = False
    """Whether one backward ran through all of them, of the sum of losses that had no need of each other."""
    derived: bool = False
    """Whether derivatives with a graph were taken in them, as in the inner steps of meta-learning."""
    largest_bytes: int = 0
    """What the largest of those graphs holds."""
    peak_bytes: int | None = None
    """The allocated peak of the batch before; None where the device reports none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchOutputs(Fact):
    """Outputs of micro-batches whose backward had run were alive, without a graph, when the optimizer stepped."""

    outputs: int
    """Micro-batches, without the last one of the step."""
    bytes: int
    """Their storages together."""
    peak_bytes: int
    """The allocated peak of the batch before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UntakenGradients(Fact):
    """Weights that no optimizer holds get gradients in every backward, which add up and which nothing takes away."""

    module: str
    """Class of the root model."""
    parameters: int
    bytes: int
    """Of the gradients."""
    whole: bool
    """Whether no optimizer holds any weight of the model."""
    peak_bytes: int | None = None
    """The allocated peak of the batch before; None where the device reports none."""
