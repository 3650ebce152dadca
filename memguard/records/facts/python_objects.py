"""Facts about what Python itself keeps: reference cycles, exceptions."""

from __future__ import annotations

from dataclasses import dataclass

from memguard.records.facts.fact import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class FreedByCollector(Fact):
    """Tensors or graphs that only the cyclic garbage collector freed, or that wait for it."""

    graphs: int
    bytes: int | None
    cycle: str | None = None
    """The cycle in words, like ``Trainer.loss <- Trainer``."""
    outputs: int = 0
    """Inputs, and outputs without a graph, among them."""
    circles: int = 0
    """Circles of one kind that were found together, and hold tensors of any kind."""
    parts: tuple[str, ...] = ()
    """Classes and closures of the user's that the circle runs through."""
    since: int = 0
    """Batch in which garbage was collected before."""
    is_collected: bool = True
    """Whether garbage is collected from time to time: by Python, or by a call of ``gc.collect()``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExceptionHolds(Fact):
    """An exception keeps the tensors of a failed step: a forward runs inside its handler, or somebody stored it."""

    exception: str
    handling: bool
    """Whether a forward runs while the error is being handled."""
    names: tuple[str, ...]
    bytes: int
