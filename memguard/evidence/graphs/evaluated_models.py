"""What is known about evaluated models, and which of them share one cause."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import final

from torch import nn

from memguard.evidence.naming.call_stacks import Stack
from memguard.records.facts import NOWHERE, Place


@final
@dataclass(slots=True)
class EvaluatedModel:
    """What is known of one model's graphs, by the mode they were built in."""

    ref: weakref.ref[nn.Module]
    name: str
    forwards: int = 0
    unused: int = 0
    used: int = 0
    beside: int = 0
    """Unused graphs of batches in which another model was trained."""
    undecided: set[int] = field(default_factory=set)
    """Optimizer steps before unused graphs of evaluation of which nobody knows yet who makes the next one."""
    decided: int = -1
    """The last of these of which that is known: the graphs of one row count once."""
    batches: int = 0
    """Batches in which unused graphs were built."""
    first_batch: int | None = None
    """The first one of them."""
    last_batch: int = -1
    """The last one."""
    last_used: int = -1
    """The last batch of which a backward used a graph."""
    bytes: int | None = None
    sized: bool = False
    place: Place = NOWHERE
    asked: Place = NOWHERE
    judge: tuple[str | None, str | None] | None = None
    """The function, no method of a model, in which its calls end up: what evaluates."""
    captive: Place | None = None
    """A line that asks, in a function that keeps the graph to itself: no backward can come any more."""
    kept: bool = False
    """Whether graphs of its evaluation were met that somebody keeps."""
    told: int = 0
    frozen: bool = False
    """Whether it was told as a frozen model: told again it stays one."""
    optimized: bool | None = None
    differentiates: bool | None = None
    """Whether its forward takes a derivative: then it needs a graph, though no backward comes by our marks."""
    stacks: list[Stack] = field(default_factory=list)
    sites: dict[Place, list[int]] = field(default_factory=dict)
    """Graphs that a backward used and that none did, by the line that called the model."""
    askers: dict[Place, Place] = field(default_factory=dict)
    """Where those calls were asked for."""

    def died_at(self, site: Place, asked: Place) -> None:
        """A graph that nobody used was built by a call; once the model was told of, its line stays."""
        if not self.told and site.file is not None:
            self.askers[site] = asked
            self.place, self.asked = site, asked

    def decide(self, steppers: Mapping[int, int], number: int, steps: int) -> None:
        """Whether other models made the steps that came after its unused graphs.

        Args:
            steppers: The model that was trained, by the optimizer steps before.
            number: This model's own number.
            steps: Optimizer steps so far.
        """
        for before in sorted(self.undecided):
            if before in steppers or before < steps:
                self.undecided.discard(before)
                self.decided = before
                self.beside += steppers.get(before, number) != number

    def choose_line(self) -> None:
        """Of the lines of one function that call it the one with the most unused graphs, then the first."""
        here = self.place.file, self.place.function
        lines = [site for site in self.askers if (site.file, site.function) == here and site in self.sites]
        if lines:
            self.place = min(lines, key=lambda site: (-self.sites[site][1], site.line or 0))
            self.asked = self.askers[self.place]

    def beside_it(self, models: Iterable[EvaluatedModel]) -> list[EvaluatedModel]:
        """Of the models that are evaluated, the others that the same function asks: one no_grad there is for all."""
        if self.judge is None:
            return []
        asked = (model for model in models if model is not self and model.judge == self.judge)
        return [model for model in asked if not (model.used or model.told or model.beside)]  # no teacher of training's


def largest(models: Iterable[EvaluatedModel]) -> EvaluatedModel:
    """Of models that one function asks the one to tell of: what its graphs hold counts, then the first line."""
    return max(models, key=lambda model: (model.bytes or 0, -(model.place.line or 0)))
