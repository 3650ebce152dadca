"""Gradients that nobody uses: of weights that nothing trains, or dropped before their own optimizer steps."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import nn

from memguard.evidence.graph_tracker import ForwardGraph
from memguard.evidence.interface import Probe
from memguard.evidence.sizes import graph_bytes
from memguard.heap.containers import tensors_in
from memguard.heap.frames import call_site, find_only_call, user_frames
from memguard.heap.parameters import ParameterAt, frozen_wholes, held_parameters, is_unheld, trainable
from memguard.records.facts import NOWHERE, Place, UntakenGradients, UnusedGraphs
from memguard.thresholds import least_of_remark
from memguard.torch_objects.module_parts import gradient_of
from memguard.torch_objects.storages import storages_of

FIRST_STEPS, SECOND_STEPS = 8, 16
"""Optimizer steps before the first and the second look at all weights: what another one trains may join meanwhile."""


@final
@dataclass(frozen=True, slots=True)
class Untaken:
    """A weight that no optimizer held when it was looked up, in plain numbers."""

    place: ParameterAt
    version: int
    gradient: int
    """Identity of its gradient; 0 where it had none."""
    gradient_version: int
    steps: int
    """Optimizer steps of the run by then."""

    def gradient_now(self, steps: int, *, unread: bool = False) -> torch.Tensor | None:
        """Its gradient, if backwards only added to that since.

        Where the weight changed, as that of a target network that follows slowly, at most one backward for each step
        may have written to it: who steps by hand clears the gradient as often as a backward adds to it.

        Args:
            steps: Optimizer steps of the run so far.
            unread: Whether none of the user's files reads a gradient: then those that were cleared served for nothing.
        """
        parameter = self.place()
        gradient = gradient_of(parameter) if parameter is not None else None
        if parameter is None or gradient is None:
            return None
        changed = parameter._version != self.version
        if unread and not changed:
            return gradient
        written = gradient._version - self.gradient_version if id(gradient) == self.gradient else 0
        return gradient if written > 0 and not (changed and written > steps - self.steps) else None


@final
class UntakenGradientsProbe(Probe):
    """Looks twice at the weights that want gradients and that no optimizer holds, while others are trained.

    Where backwards add to their gradients from the first look to the second, and nothing takes these away, they were to
    be frozen: the backbone under adapters, the network inside a loss.
    """

    def _prepare(self) -> None:
        self._found: list[tuple[weakref.ref[nn.Module], list[Untaken]]] | None = None
        """By root model; None before the first look."""

    def on_batch_end(self) -> None:
        """The first look, the second one, or neither yet."""
        watch, steps = self.watch, self.watch.optimizer_steps
        if steps < (FIRST_STEPS if self._found is None else SECOND_STEPS):
            return
        if self._found is not None:
            self.unsubscribe("on_batch_end")
            found, self._found = self._found, []
            kept = [(ref, [one for one in untaken if one.gradient_now(steps) is not None]) for ref, untaken in found]
            if any(untaken for _, untaken in kept):
                held = held_parameters()  # of optimizers too that have not stepped yet; finding them takes long
                alive = [(model, untaken) for ref, untaken in kept if (model := ref()) is not None]
                wholes = frozen_wholes([model for model, _ in alive], held)
                of_each: dict[int, list[Untaken]] = {}
                for model, untaken in alive:
                    of_each.setdefault(id(wholes[id(model)]), []).extend(untaken)
                for whole in {id(whole): whole for whole in wholes.values()}.values():
                    self._conclude(whole, of_each[id(whole)], held)
            return
        held = held_parameters(watch.optimizers)
        found = [(weakref.ref(model), list(untaken_weights(model, held, steps))) for model in watch.models]
        self._found = [(ref, untaken) for ref, untaken in found if untaken]
        if not self._found:
            self.unsubscribe("on_batch_end")

    def _conclude(self, model: nn.Module, untaken: list[Untaken], held: set[int]) -> None:
        watch = self.watch
        known = [one for one in untaken if id(one.place()) not in held]
        gradients = [gradient for one in known if (gradient := one.gradient_now(watch.optimizer_steps)) is not None]
        nbytes = sum(storages_of(gradients).values())
        if not nbytes or nbytes < (least_of_remark(watch.peak_bytes) or 0):
            return
        whole = is_unheld(model, held)
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


def untaken_weights(model: nn.Module, held: set[int], steps: int, *, cleared: bool = False) -> Iterator[Untaken]:
    """The weights of a model that are not held, as they are now, after so many steps.

    Args:
        model: The model.
        held: Identities of the parameters that optimizers hold.
        steps: Optimizer steps of the run so far.
        cleared: Whether to name those too that have no gradient now.
    """
    for place in trainable(model):
        parameter = place()
        if parameter is None or id(parameter) in held or parameter.is_inference():
            continue
        gradient = gradient_of(parameter)
        if gradient is not None:
            yield Untaken(place, parameter._version, id(gradient), gradient._version, steps)
        elif cleared:
            yield Untaken(place, parameter._version, 0, 0, steps)


MIN_DROPPED = 3
"""Times that the gradients of one line were dropped."""
MOST_STEPS = 64
"""Optimizer steps that are heard: in the first batches, all of which are followed."""
MOST_OPEN = 64
"""Forwards between two steps that are followed."""
_EVENTS = ("on_forward_end", "on_optimizer_step_start")


@final
@dataclass(slots=True)
class _Line:
    """The calls of one model on one line."""

    dropped: int = 0
    bytes: int | None = None


@final
@dataclass(frozen=True, slots=True)
class _LeftBehind:
    """A gradient that the step of another model left behind."""

    parameter: ParameterAt
    gradient: weakref.ref[torch.Tensor]
    lines: set[tuple[int, Place]]
    """The model and the lines that it came by."""


@final
class DroppedGradientsProbe(Probe):
    """Looks, in the first batches of a loop with two optimizers, whose gradients are dropped.

    An optimizer steps after a backward that ran through a model of another optimizer, and nothing that went into that
    model wanted a gradient: its weights alone got any. If they are gone as its own optimizer steps, its graph was built
    and run through for nothing: a generator in the step of its critic, an actor in the target of its critic. A gradient
    that is still the same one by then was used, and nothing more is asked of that model.
    """

    def _prepare(self) -> None:
        self._open: list[tuple[ForwardGraph, weakref.ref[nn.Module], Place]] = []
        """Forwards since the last step, of inputs that want no gradient, and the lines that called them."""
        self._lines: dict[tuple[int, Place], _Line] = {}
        self._left: dict[int, _LeftBehind] = {}
        """By the identity of the parameter."""
        self._done: set[int] = set()
        self._steps = 0
        """Optimizer steps before the newest one that was heard."""
        self._heard = 0
        self.unsubscribe(*_EVENTS)

    def on_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """With two optimizers one may drop what the other's step left behind."""
        if len(self.watch.optimizers) >= 2 and not self._steps:
            self._steps = self.watch.optimizer_steps
            self.hear(*_EVENTS)

    def on_forward_end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """Notes a forward whose graph begins in the model; sizes the second one of a line."""
        mark, number = self.watch.ledger.current, id(module)
        if mark is None or mark.outer is not None or number in self._done or len(self._open) >= MOST_OPEN:
            return
        if any(tensor.requires_grad for tensor in tensors_in(args)):
            return
        site = mark.site or call_site()
        self._open.append((mark, weakref.ref(module), site))
        line = self._lines.get((number, site))
        if line is not None:
            line.bytes = line.bytes or graph_bytes(module, output)

    def on_optimizer_step_start(self, optimizer: torch.optim.Optimizer) -> None:
        """Judges what was left behind for this optimizer; notes what its own step leaves behind."""
        watch = self.watch
        self._heard += 1
        if self._heard > MOST_STEPS or watch.optimizer_steps > self._steps + 1:
            self.unsubscribe(*_EVENTS)  # where one step was not heard, nobody knows what it used
            self._open, self._left = [], {}
            return
        self._steps = watch.optimizer_steps
        held = held_parameters([optimizer])
        for number in held.intersection(self._left):
            self._judge(self._left.pop(number))
        opened, self._open = self._open, []
        for mark, ref, site in opened:
            module = ref()
            place = next(trainable(module), None) if module is not None and mark.used else None
            parameter = place() if place is not None else None
            gradient = gradient_of(parameter) if parameter is not None and id(parameter) not in held else None
            if gradient is None or place is None:
                continue
            line = mark.module, site
            self._lines.setdefault(line, _Line())
            left = self._left.get(id(parameter))
            if left is None or left.gradient() is not gradient:
                left = self._left[id(parameter)] = _LeftBehind(place, weakref.ref(gradient), set())
            left.lines.add(line)

    def _judge(self, left: _LeftBehind) -> None:
        parameter, gradient = left.parameter(), left.gradient()
        if parameter is None:
            return
        if gradient is not None and gradient_of(parameter) is gradient:
            self._done.update(number for number, _ in left.lines)
            return
        for number, place in left.lines:
            line = self._lines[number, place]
            line.dropped += 1
            if line.dropped >= MIN_DROPPED and line.bytes and number not in self._done:
                self._done.add(number)
                self._tell(number, place, line)

    def _tell(self, number: int, place: Place, line: _Line) -> None:
        watch = self.watch
        module = next((model for model in watch.models if id(model) == number), None)
        if module is None or (line.bytes or 0) < (least_of_remark(watch.peak_bytes) or 0):
            return
        self.report(
            UnusedGraphs(
                **watch.now,
                place=place,
                module=type(module).__name__,
                count=line.dropped,
                bytes=line.bytes,
                frozen=True,
                dropped=True,
                peak_bytes=watch.peak_bytes,
            )
        )
