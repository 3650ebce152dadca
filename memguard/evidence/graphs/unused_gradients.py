"""Gradients of weights that nothing trains: of a teacher whose output was not detached, of a backbone not frozen."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import nn

from memguard.evidence.interface import Probe, ProbeContext
from memguard.evidence.minimum_sizes import least_of_remark
from memguard.evidence.naming.call_stacks import Stack, line_to_change, stack_of
from memguard.heap.containers import tensors_in
from memguard.heap.frames import user_frames
from memguard.heap.parameters import ParameterAt, held_parameters, is_optimized, trainable
from memguard.heap.roots import submodules_of
from memguard.heap.sites import call_site, find_only_call
from memguard.records.facts import NOWHERE, Fact, UntakenGradients, UnusedGraphs
from memguard.torch_objects.module_parts import gradient_of, gradients_of, parameters_of
from memguard.torch_objects.storages import storages_of

MIN_STEPS = 4
"""Optimizer steps, of others, through which its gradients were there."""
STACKS = 4
"""Calls of each model whose whole way is noted."""
FIRST_STEPS, SECOND_STEPS = 8, 16
"""Optimizer steps before the first and the second look at all weights: what another one trains may join meanwhile."""


@final
@dataclass(slots=True)
class _Model:
    """What is known of one model whose inputs want no gradient."""

    ref: weakref.ref[nn.Module]
    parameter: ParameterAt
    """The first trainable one."""
    version: int
    steps: int = 0
    """Optimizer steps at the last look."""
    gradient: tuple[int, int] = (0, 0)
    """Id and version of its gradient, which piles up in the same tensor while nobody takes it away."""
    seen: int = 0
    calls: int = 0
    stacks: list[Stack] = field(default_factory=list)


@final
class UnownedGradientsProbe(Probe):
    """Looks whether a model that only serves others collects gradients.

    Its graph is in vain where all of this holds: nothing that goes into it wants a gradient, its weights have
    gradients that nobody ever takes away, they never change, and no optimizer holds any of them while others step.
    """

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._models: dict[int, _Model] = {}
        self._done: set[int] = set()
        self.unsubscribe("on_forward_start")

    def on_model(self, model: nn.Module) -> None:
        """Where there are several, one may only serve the others."""
        if len(self.watch.models) > 1:
            self.hear("on_forward_start")

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Looks at one parameter of the model."""
        number = id(module)
        if number in self._done or not torch.is_grad_enabled():
            return
        model = self._models.get(number)
        if model is None or model.ref() is not module:
            place = next(trainable(module), None)
            parameter = place() if place is not None else None
            if place is None or parameter is None:
                return
            if parameter.is_inference():  # counts no versions, and gets no gradient
                self._done.add(number)
                return
            model = self._models[number] = _Model(weakref.ref(module), place, parameter._version)
        model.calls += 1
        if len(model.stacks) < STACKS:
            model.stacks.append(stack_of(module))
        if any(tensor.requires_grad for tensor in tensors_in((args, kwargs))):
            self._done.add(number)  # its graph leads on to others'
            return
        parameter = model.parameter()
        if parameter is None or parameter._version != model.version:
            self._done.add(number)  # somebody trains it, or averages weights into it
            return
        steps, model.steps = model.steps, self.watch.optimizer_steps
        if model.steps == steps:
            return
        gradient = gradient_of(parameter)
        if gradient is None:
            model.seen = 0
            return
        before, model.gradient = model.gradient, (id(gradient), gradient._version)
        if model.seen and not (before[0] == model.gradient[0] and before[1] < model.gradient[1]):
            self._done.add(number)  # somebody takes them away
            return
        model.seen += 1
        if model.seen >= MIN_STEPS:
            self._done.add(number)
            self._conclude(module, model)

    def _conclude(self, module: nn.Module, model: _Model) -> None:
        if is_optimized([module], self.watch.optimizers):
            return
        others = [other for number, other in self._models.items() if number != id(module)]
        trained = [other for found in others if (other := found.ref()) is not None]
        trained = [other for other in trained if is_optimized([other], self.watch.optimizers)]
        parts = {id(part) for other in trained for part in submodules_of(other, set())}
        place = line_to_change(model.stacks[0], [way for other in others for way in other.stacks], parts)
        gradients = gradients_of(parameters_of(module))
        self.watch.unowned.add(id(module))
        self.report(
            UnusedGraphs(
                **self.watch.now,
                place=place or call_site(),
                module=type(module).__name__,
                count=model.seen,
                forwards=model.calls,
                frozen=True,
                gradients_bytes=sum(gradient.numel() * gradient.element_size() for gradient in gradients),
            )
        )


@final
@dataclass(frozen=True, slots=True)
class Untaken:
    """A weight that no optimizer held when it was looked up, in plain numbers."""

    place: ParameterAt
    version: int
    gradient: int
    """Identity of its gradient."""
    gradient_version: int

    def gradient_now(self) -> torch.Tensor | None:
        """Its gradient, if backwards only added to that since, and nothing changed the weight."""
        parameter = self.place()
        gradient = None if parameter is None or parameter._version != self.version else gradient_of(parameter)
        if gradient is None or id(gradient) != self.gradient or gradient._version <= self.gradient_version:
            return None
        return gradient


@final
class UntakenGradientsProbe(Probe):
    """Looks twice at the weights that want gradients and that no optimizer holds, while others are trained.

    Where backwards add to their gradients from the first look to the second, nothing takes these away, and the weights
    never change, they were to be frozen: the backbone under adapters, the network inside a loss.
    """

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._found: list[tuple[weakref.ref[nn.Module], list[Untaken]]] | None = None
        """By root model; None before the first look."""

    def on_batch_end(self) -> None:
        """The first look, the second one, or neither yet."""
        watch = self.watch
        if watch.optimizer_steps < (FIRST_STEPS if self._found is None else SECOND_STEPS):
            return
        if self._found is not None:
            self.unsubscribe("on_batch_end")
            for ref, untaken in self._found:
                if (model := ref()) is not None:
                    self._conclude(model, untaken)
            self._found = []
            return
        held = held_parameters(watch.optimizers)
        if any(next(untaken_weights(model, held), None) for model in watch.models):
            held = held_parameters()  # of those too that have not stepped yet; finding them takes long
        found = [(weakref.ref(model), list(untaken_weights(model, held))) for model in watch.models]
        self._found = [(ref, untaken) for ref, untaken in found if untaken]
        if not self._found:
            self.unsubscribe("on_batch_end")

    def _conclude(self, model: nn.Module, untaken: list[Untaken]) -> None:
        watch, held = self.watch, held_parameters()
        known = [one for one in untaken if id(one.place()) not in held]
        gradients = [gradient for one in known if (gradient := one.gradient_now()) is not None]
        nbytes = sum(storages_of(gradients).values())
        if not nbytes or nbytes < (least_of_remark(watch.record) or 0):
            return
        whole = not any(id(parameter) in held for parameter in parameters_of(model))
        files = {frame.f_code.co_filename for frame in user_frames()}
        made = type(model) if whole or not watch.optimizers else type(watch.optimizers[0])
        self.report(
            UntakenGradients(
                **watch.now,
                place=find_only_call(files, made.__name__) or NOWHERE,
                module=type(model).__name__,
                parameters=len(gradients),
                bytes=nbytes,
                whole=whole,
                peak_bytes=watch.peak_bytes,
            )
        )


def untaken_weights(model: nn.Module, held: set[int]) -> Iterator[Untaken]:
    """The weights of a model that have gradients and that are not held, as they are now."""
    for place in trainable(model):
        parameter = place()
        if parameter is None or id(parameter) in held or parameter.is_inference():
            continue
        gradient = gradient_of(parameter)
        if gradient is not None:
            yield Untaken(place, parameter._version, id(gradient), gradient._version)
