"""Sparse gradients to which every backward appends rows, for nothing takes them away."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch

from memguard.evidence.interface import Probe, ProbeContext
from memguard.heap.sites import call_site
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
    place: Place | None = None
    """Where its optimizer steps, once it was told of."""


@final
class PilingGradientsProbe(Probe):
    """Compares sparse gradients from step to step. One that ``zero_grad`` took away or emptied begins anew.

    A dense gradient is added to in place. The rows of a sparse one are appended: it grows until the device is full.
    """

    name: ClassVar[str] = "piling gradients"
    always: ClassVar[frozenset[str]] = frozenset({"on_optimizer_step_start"})  # a second one steps between two batches

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._left: dict[int, int] = {}
        """Looks that are left at an optimizer of sparse gradients, by its identity."""
        self._piles: dict[int, _Pile] = {}
        """By the identity of the parameter."""
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
        grows = False
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                gradient = gradient_of(parameter)
                if gradient is not None and gradient.layout is not torch.strided:
                    grows |= self._follow(parameter, gradient)
        if not grows:
            self._left[number] -= 1
            if not any(self._left.values()):
                self.unsubscribe("on_optimizer_step_start")

    def on_run_end(self) -> None:
        """What was told of is sized once more."""
        for pile in self._piles.values():
            gradient = pile.gradient()
            if pile.place is not None and gradient is not None:
                self._tell(pile, pile.place, (storage_key(gradient) or (0, pile.bytes))[1])

    def remove(self) -> None:
        """Forgets all gradients."""
        self._piles.clear()

    def _follow(self, parameter: torch.Tensor, gradient: torch.Tensor) -> bool:
        """Compares a gradient with what it was at the step before; whether it is to be followed on."""
        size = (storage_key(gradient) or (0, 0))[1]
        pile = self._piles.get(id(parameter))
        if pile is None or pile.gradient() is not gradient or size <= pile.bytes:
            self._piles[id(parameter)] = _Pile(weakref.ref(gradient), size, size, self.watch.batch)
            return False
        pile.bytes, pile.steps = size, pile.steps + 1
        if pile.steps >= MIN_STEPS and pile.place is None:
            pile.place = replace(call_site(), holder=self._name(parameter))
            self._tell(pile, pile.place, size)
        return pile.place is None

    def _tell(self, pile: _Pile, place: Place, size: int) -> None:
        batches = max(self.watch.batch - pile.first_batch, 1)
        self.report(
            PilingGradients(
                batch=self.watch.batch,
                stage=Stage.TRAIN,
                place=place,
                steps=pile.steps,
                first_batch=pile.first_batch,
                bytes=size,
                bytes_per_batch=(size - pile.first_bytes) / batches,
            )
        )

    def _name(self, parameter: torch.Tensor) -> str | None:
        """The parameter's gradient, as ``Recommender.items.weight.grad``."""
        for model in self.watch.models:
            for name, each in named_parameters_of(model):
                if each is parameter:
                    return f"{type(model).__name__}.{name}.grad"
        return None
