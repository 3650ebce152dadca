"""Weights of a sharded model that stay gathered from one optimizer step to the next.

FSDP gathers a module's weights for its forward and its backward. What no backward comes to free stays: the outermost
module of a reference model, one on which ``unshard()`` was called. While it is gathered a module has whole parameters
in the place of its DTensors, so that nothing private of torch is asked.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import nn

from memguard.evidence.interface import Probe
from memguard.heap.frames import call_site
from memguard.records.facts import NOWHERE, GatheredWeights, Place
from memguard.torch_objects.module_parts import named_parameters_of
from memguard.torch_objects.storages import is_sharded, storages_of

STEPS = 2
"""Optimizer steps in a row at which they are gathered: at one of them another model may wait for its backward."""


@final
@dataclass(slots=True)
class _Sharded:
    """A model with sharded weights."""

    model: weakref.ref[nn.Module]
    names: frozenset[str]
    call: Place | None = None
    steps: int = 0

    def gathered(self) -> dict[int, int]:
        """Storages of those of its weights that are whole now."""
        model = self.model()
        named = named_parameters_of(model) if model is not None else ()
        return storages_of(one for name, one in named if name in self.names and not is_sharded(one))


@final
class GatheredWeightsProbe(Probe):
    """Asks each sharded model after the optimizer's step, when no weights need to be whole."""

    def _prepare(self) -> None:
        self._sharded: list[_Sharded] = []
        self.deaf = frozenset({"on_forward_start", "on_optimizer_step_end"})

    def on_model(self, model: nn.Module) -> None:
        """Listens once there is one with sharded weights."""
        names = frozenset(name for name, one in named_parameters_of(model) if is_sharded(one))
        if names:
            self._sharded.append(_Sharded(weakref.ref(model), names))
            self.hear("on_forward_start", "on_optimizer_step_end")

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Notes where each is called."""
        for sharded in self._sharded:
            if sharded.call is None and sharded.model() is module:
                sharded.call = call_site()
        if all(sharded.call is not None for sharded in self._sharded):
            self.unsubscribe("on_forward_start")

    def on_optimizer_step_end(self, optimizer: torch.optim.Optimizer) -> None:
        """Reports those that stayed whole."""
        for sharded in tuple(self._sharded):
            storages = sharded.gathered()
            sharded.steps = sharded.steps + 1 if storages else 0
            if sharded.steps == STEPS:
                self._sharded.remove(sharded)
                self._tell(sharded, storages)
        if not self._sharded:
            self.unsubscribe("on_forward_start", "on_optimizer_step_end")

    def _tell(self, sharded: _Sharded, storages: Mapping[int, int]) -> None:
        watch, model, place = self.watch, sharded.model(), sharded.call or NOWHERE
        survey = watch.search()
        link = next((link for link in survey.snapshot.links if link.value is model), None)
        self.report(
            GatheredWeights(
                **watch.now,
                place=place,
                name=survey.cause(link).holder if link is not None else None,
                parameters=len(storages),
                bytes=sum(storages.values()),
            )
        )
