"""Gradients that live too long or carry a graph, and the states that an optimizer will allocate."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

import torch
from torch import nn

from memguard.evidence.interface import Probe
from memguard.evidence.owners import state_tensors
from memguard.heap.frames import call_site, find_call, find_only_call, place_of, user_frames
from memguard.heap.parameters import ParameterAt, gradients_at, trainable
from memguard.records.facts import GradientsWithGraph, OptimizerStateAhead, Place, StaleGradients
from memguard.records.stats import BatchRecord, Stage
from memguard.source.remaking import drops_gradients_below
from memguard.torch_objects.module_parts import gradient_of, gradients_of, parameters_of, stepped_by
from memguard.torch_objects.storages import storages_of

GRAPHS = 3
"""Steps whose gradients carried a graph, before it is told."""
PLAIN = 48
"""Steps in a row whose gradients carried none, after which it is not asked any more."""
LOOKS = 2
"""Forwards after a step whose gradients are looked at, before it is told."""
SAMPLE = 4
"""Parameters that are asked whether their gradient carries a graph."""
MIN_STALE_BYTES = 64 * 1024

_BACKWARDS = ("backward", "manual_backward", "grad")


@final
class GradientsProbe(Probe):
    """Looks at gradients where they should be gone, and at an optimizer before its first step."""

    def _prepare(self) -> None:
        self._stepped = False
        self._looks = 0
        self._one: tuple[int, int] | None = None
        """Id and version of the gradient that the first look met."""
        self._zeroed = False
        """Whether a step used that same gradient again: between the two it was written to, and not let go."""
        self._graphs_told = self._with_graph = self._plain = 0
        self._step_site: Place | None = None
        self._evaluations = self._evaluation_peak = 0
        """Passes since the first step, and the highest peak after the first of them."""
        self.unsubscribe("on_records")
        self._backward: Place | None = None
        """The one above the last step whose gradients carried a graph."""
        self._first: dict[int, list[ParameterAt]] = {}

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Gradients with a graph that are still there when the next forward begins make a cycle."""
        if not self._stepped or not module.training:
            return
        known = self._first.get(id(module))
        gradients = gradients_at(known) if known is not None else self._first_gradients(module)
        if not gradients:
            if torch.is_grad_enabled():
                self._stepped, self._looks, self._one = False, 0, None  # none left: nothing to look at when it ends
            return
        if self._graphs_told >= LOOKS or not any(gradient.grad_fn is not None for gradient in gradients):
            return
        self._graphs_told += 1
        if self._graphs_told == LOOKS:
            self._tell_graphs(_gradients(module), self._backward or self._backward_place())

    def _tell_graphs(self, gradients: list[torch.Tensor], place: Place, *, cleared: bool = False) -> None:
        self._graphs_told = LOOKS
        graphs = [gradient for gradient in gradients if gradient.grad_fn is not None]
        self.report(
            GradientsWithGraph(
                **self.watch.now,
                place=place,
                parameters=len(graphs),
                bytes=sum(storages_of(graphs).values()),
                cleared=cleared,
            )
        )

    def on_forward_end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """Looks at the gradients at the end of the first forward after a step."""
        if not self._stepped or not module.training or not torch.is_grad_enabled() or output is None:
            return
        self._stepped = False
        if type(module).__name__.startswith(("FullySharded", "FSDP")):
            return
        one = next(iter(self._first_gradients(module)), None)
        if one is None:
            self._looks, self._one = 0, None
            return
        self._looks += 1
        if self._looks < LOOKS:
            self._one, self._zeroed = (id(one), one._version), False
            return
        self.unsubscribe("on_forward_end")
        held = [*_gradients(module), *self._beside(one)]
        # Checked in Lightning 2.2 and 2.6; without it the training_step itself zeroes and steps.
        is_by_hand = any(vars(one).get("_automatic_optimization") is False for one in self.watch.models)
        lightning, peak = self.watch.lightning and not is_by_hand, self.watch.read().allocated_peak_bytes
        self._tell_stale(held, self.watch.stage, call_site(), peak, zeroed=self._zeroed, lightning=lightning)

    def _tell_stale(
        self,
        gradients: list[torch.Tensor],
        stage: Stage,
        site: Place,
        peak_bytes: int | None,
        *,
        zeroed: bool,
        lightning: bool,
    ) -> None:
        nbytes = sum(storages_of(gradients).values())
        if nbytes >= MIN_STALE_BYTES:
            self.report(
                StaleGradients(
                    batch=self.watch.batch,
                    stage=stage,
                    place=find_call(site, "zero_grad") or site,
                    bytes=nbytes,
                    zeroed=zeroed,
                    lightning=lightning,
                    peak_bytes=peak_bytes,
                )
            )

    def on_records(self, records: Sequence[BatchRecord]) -> None:
        """How high evaluation reaches."""
        peaks = (record.allocated_peak_bytes or 0 for record in records if record.stage.evaluates)
        self._evaluation_peak = max(self._evaluation_peak, *peaks, 0)

    def on_stage_end(self, stage: Stage) -> None:
        """What is alive in an evaluation, once the records of one show how high it reaches."""
        if not stage.evaluates or self._step_site is None:
            return
        self._evaluations += 1
        if not self._evaluation_peak and self._evaluations <= LOOKS:  # without evaluation nobody needs its records
            self.hear("on_records")
            return
        self.unsubscribe("on_stage_end", "on_records")
        if peak := self._evaluation_peak:
            held, lightning = gradients_of(stepped_by(self.watch.optimizers)), self.watch.lightning
            self._tell_stale(held, stage, self._step_site, peak, zeroed=False, lightning=lightning)

    def on_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Before an optimizer's first step: what it will allocate."""
        if optimizer.state:
            return
        state, temporary = _state_ahead(optimizer)
        if not state:
            return
        stats, site = self.watch.read(), call_site()
        files = {frame.f_code.co_filename for frame in user_frames()}
        self.report(
            OptimizerStateAhead(
                **self.watch.now,
                place=find_only_call(files, type(optimizer).__name__) or site,
                optimizer=type(optimizer).__name__,
                state_bytes=state,
                temporary_bytes=temporary,
                allocated_bytes=stats.allocated_bytes,
                peak_bytes=stats.allocated_peak_bytes,
            )
        )

    def on_optimizer_step_end(self, optimizer: torch.optim.Optimizer) -> None:
        """The gradients have served; with a graph they hold it until somebody takes them away."""
        self._stepped = True
        if self._step_site is None:
            self._step_site = call_site()
        if self._one is not None and self._looks < LOOKS:
            known, version = self._one
            gradients = gradients_of(stepped_by([optimizer]))
            # A new one at its address begins anew; the backward of another model may add to it, but steps on it never.
            self._zeroed = any(id(gradient) == known and gradient._version > version for gradient in gradients)
        if self._graphs_told >= LOOKS or self._with_graph >= GRAPHS or self._plain >= PLAIN:
            return
        if not any(gradient.grad_fn is not None for gradient in _some_gradients(optimizer)):
            self._plain += 1
            return
        self._plain = 0
        self._with_graph += 1
        sites = (place_of(frame) for frame in user_frames(sys._getframe(1)))
        calls = (find_call(site, *_BACKWARDS, above=True, text="create_graph") for site in sites)
        self._backward = place = next((call for call in calls if call is not None), None)
        if place is not None and self._with_graph >= GRAPHS:
            gradients = gradients_of(stepped_by([optimizer]))
            self._tell_graphs(gradients, place, cleared=_dropped_below(place) is not None)

    def _beside(self, gradient: torch.Tensor) -> Iterator[torch.Tensor]:
        """The gradients that the optimizer of one of them steps on: a loss may have weights of its own, and most."""
        for optimizer in self.watch.optimizers:
            gradients = gradients_of(stepped_by([optimizer]))
            if any(each is gradient for each in gradients):
                yield from gradients

    def _first_gradients(self, module: nn.Module) -> list[torch.Tensor]:
        """The gradients of a few trainable parameters; walking over all of them in every batch would cost too much."""
        known = self._first.get(id(module))
        if known is None:
            known = self._first[id(module)] = list(itertools.islice(trainable(module), SAMPLE))
        return gradients_at(known)

    def _backward_place(self) -> Place:
        kept = [mark.kept for mark in list(self.watch.ledger.live.values()) if mark.kept is not None]
        site = kept[-1] if kept else call_site()
        return find_call(site, *_BACKWARDS, text="create_graph") or site


def _some_gradients(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """Those of the first parameters of an optimizer."""
    first = optimizer.param_groups[0]["params"]  # in each batch that is looked at: as a rule there are enough in it
    return gradients_of(first[:SAMPLE] if len(first) >= SAMPLE else itertools.islice(stepped_by([optimizer]), SAMPLE))


def _gradients(module: nn.Module) -> list[torch.Tensor]:
    return gradients_of(parameters_of(module))


def _state_ahead(optimizer: torch.optim.Optimizer) -> tuple[int, int]:
    """Bytes of state of a first step, and what the step itself holds besides; (0, 0) for classes not known.

    Where there are no gradients yet, the step's closure makes them, as in Lightning: then they are still to come.
    """
    kind = type(optimizer)
    if not kind.__module__.startswith("torch.optim"):
        return 0, 0
    state = temporary = 0
    are_to_come = not gradients_of(stepped_by([optimizer]))
    for group in optimizer.param_groups:
        trained = (each.requires_grad if are_to_come else gradient_of(each) is not None for each in group["params"])
        nbytes = sum(one.numel() * one.element_size() for one in itertools.compress(group["params"], trained))
        temporary += nbytes * are_to_come
        state += (state_tensors(kind.__name__, group) or 0) * nbytes
        is_foreach = group.get("foreach")
        if is_foreach is None:
            is_foreach = bool(group["params"]) and group["params"][0].is_cuda
        if is_foreach and not group.get("fused"):
            temporary += nbytes
    return state, temporary


def _dropped_below(site: Place) -> Place | None:
    """Where the function of a line goes on to let the gradients go."""
    place = drops_gradients_below(site.file or "", site.line or 0)
    function = (site.function or "<module>").rpartition(".")[2]
    return place if place is not None and (place.function or "<module>") == function else None
