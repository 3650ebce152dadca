"""Sparse gradients to which every backward appends rows, for nothing takes them away."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch

from memguard.evidence.interface import Probe, ProbeContext
from memguard.heap.frames import call_site
from memguard.records.facts import Fact, PilingGradients, Place
from memguard.records.stats import Stage
from memguard.torch_objects.module_parts import gradient_of, named_parameters_of
from memguard.torch_objects.storages import storage_key

LOOKS = 4
"""Steps of an optimizer after which it is not asked any more, if none of its gradients had grown since the last."""
MIN_STEPS = 8
"""Steps in a row at which one and the same gradient was larger than at the step before."""


@final
@dataclass(slots=True)
class _Pile:
    """One gradient, step after step."""

    gradient: weakref.ref[torch.Tensor]
    bytes: int
    first_bytes: int
    first_batch: int
    steps: int = 0


@final
class PilingGradientsProbe(Probe):
    """Compares sparse gradients from step to step. One that ``zero_grad`` took away or emptied begins anew.

    A dense gradient is added to in place. The rows of a sparse one are appended: it grows until the device is full.
    """

    always: ClassVar[frozenset[str]] = frozenset({"on_optimizer_step_start"})  # a second one steps between two batches

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._left: dict[int, int] = {}
        """Looks that are left at an optimizer of sparse gradients, by its identity."""
        self._piles: dict[int, _Pile] = {}
        """By the identity of the parameter."""
        self._told: dict[int, tuple[Place, list[_Pile]]] = {}
        """By optimizer: where it steps, and its gradients that pile up."""
        self.unsubscribe("on_optimizer_step_start")

    def on_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """One that steps on sparse gradients is followed."""
        parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
        gradients = (gradient_of(parameter) for parameter in parameters)
        if any(gradient is not None and gradient.layout is not torch.strided for gradient in gradients):
            self._left[id(optimizer)] = LOOKS
            self.hear("on_optimizer_step_start")

    def on_optimizer_step_start(self, optimizer: torch.optim.Optimizer) -> None:
        """Looks at its gradients."""
        number = id(optimizer)
        if not self._left.get(number):
            return
        grown: list[tuple[int, torch.Tensor]] = []
        piles: list[_Pile] = []
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                gradient = gradient_of(parameter)
                if gradient is not None and gradient.layout is not torch.strided:
                    pile = self._follow(parameter, gradient)
                    if pile.steps:
                        piles.append(pile)
                        grown.append((pile.bytes, parameter))
        if any(pile.steps >= MIN_STEPS for pile in piles):
            self._left[number] = 1
            largest = max(grown, key=lambda one: one[0])[1]
            self._told[number] = replace(call_site(), holder=self._name(largest)), piles
            self._tell(*self._told[number])
        if not piles or number in self._told:
            self._left[number] -= 1
            if not any(self._left.values()):
                self.unsubscribe("on_optimizer_step_start")

    def on_run_end(self) -> None:
        """What was told of is sized once more."""
        for place, piles in self._told.values():
            self._tell(place, piles)

    def _follow(self, parameter: torch.Tensor, gradient: torch.Tensor) -> _Pile:
        """Compares a gradient with what it was at the step before."""
        size = (storage_key(gradient) or (0, 0))[1]
        pile = self._piles.get(id(parameter))
        if pile is None or pile.gradient() is not gradient or size <= pile.bytes:
            pile = self._piles[id(parameter)] = _Pile(weakref.ref(gradient), size, size, self.watch.batch)
        else:
            pile.bytes, pile.steps = size, pile.steps + 1
        return pile

    def _tell(self, place: Place, piles: list[_Pile]) -> None:
        for pile in piles:
            gradient = pile.gradient()
            pile.bytes = ((storage_key(gradient) if gradient is not None else None) or (0, pile.bytes))[1]
        nbytes, first = sum(pile.bytes for pile in piles), min(pile.first_batch for pile in piles)
        more = nbytes - sum(pile.first_bytes for pile in piles)
        self.report(
            PilingGradients(
                batch=self.watch.batch,
                stage=Stage.TRAIN,
                place=place,
                gradients=len(piles),
                first_batch=first,
                bytes=nbytes,
                bytes_per_batch=more / max(self.watch.batch - first, 1),
            )
        )

    def _name(self, parameter: torch.Tensor) -> str | None:
        """The parameter's gradient, as ``Recommender.items.weight.grad``."""
        for model in self.watch.models:
            for name, each in named_parameters_of(model):
                if each is parameter:
                    return f"{type(model).__name__}.{name}.grad"
        return None
