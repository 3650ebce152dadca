"""Gradients that live through the forward in loops that update weights by hand."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, final

import torch
from torch import nn

from memguard.evidence.interface import Probe, ProbeContext
from memguard.heap.parameters import ParameterAt, trainable
from memguard.heap.sites import call_site
from memguard.records.facts import Fact, Place, StaleGradients
from memguard.source.remaking import drops_gradients_below, zeroes_gradients
from memguard.torch_objects.module_parts import gradient_of, gradients_of, parameters_of
from memguard.torch_objects.storages import storages_of

LOOKS = 3
"""Batches in a row before each of which the weights were changed, and in which a gradient was there."""
MIN_BYTES = 64 * 1024


class _Seen(NamedTuple):
    """One parameter at the end of a batch's first forward."""

    batch: int
    steps: int
    weight: int
    """Its version."""
    gradient: int
    """Its gradient's id."""
    written: int
    """Its gradient's version."""


@final
class ByHandProbe(Probe):
    """Looks at one parameter at the end of a batch's first forward; it ends with the first optimizer.

    Weights that changed in place since the last batch tell that its gradients have served. Where a batch comes without,
    they are being accumulated: then all of it is meant so.
    """

    name: ClassVar[str] = "by hand"

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._places: dict[int, ParameterAt | None] = {}
        self._seen: dict[int, list[_Seen]] = {}
        """By the model's id."""

    def on_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Its gradients are another probe's matter."""
        self._end()

    def on_forward_end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """Compares the gradient with the last batch's."""
        if not module.training or not torch.is_grad_enabled() or output is None:
            return
        key = id(module)
        if key not in self._places:
            self._places[key] = next(trainable(module), None)
        place, seen = self._places[key], self._seen.setdefault(key, [])
        parameter = place() if place is not None else None
        gradient = gradient_of(parameter) if parameter is not None else None
        if parameter is None or gradient is None or gradient._is_view():  # a bucket's, which is there for good
            seen.clear()
            return
        watch = self.watch
        now = _Seen(watch.batch, watch.optimizer_steps, parameter._version, id(gradient), gradient._version)
        last = seen[-1] if seen else None
        if last is not None and last.batch == now.batch:
            return
        if last is not None and (last.steps == now.steps or last.weight == now.weight):
            self._end()
            return
        seen.append(now)
        if len(seen) > LOOKS:
            self._end()
            self._tell(module, zeroed=_is_zeroed(seen))

    def _end(self) -> None:
        self.unsubscribe("on_forward_end", "on_optimizer")

    def _tell(self, module: nn.Module, *, zeroed: bool) -> None:
        held = sum(storages_of(gradients_of(parameters_of(module))).values())
        place = _cause(zeroed=zeroed)
        if held < MIN_BYTES or place is None:
            return
        self.report(
            StaleGradients(
                batch=self.watch.batch,
                stage=self.watch.stage,
                place=place,
                bytes=held,
                zeroed=zeroed,
                by_hand=True,
                peak_bytes=self.watch.read().allocated_peak_bytes,
            )
        )


def _is_zeroed(seen: list[_Seen]) -> bool:
    """Whether it is one gradient, to which each backward adds: else each batch made one anew."""
    return all(last.gradient == now.gradient and last.written < now.written for last, now in pairwise(seen))


def _cause(*, zeroed: bool) -> Place | None:
    """In the file of the function that calls the model: what another one zeroes may be something else's."""
    site = call_site()
    if site.file is None or site.line is None:
        return None
    if zeroed:
        return zeroes_gradients(site.file)
    function = (site.function or "").rpartition(".")[2]
    place = drops_gradients_below(site.file, site.line)
    return place if place is not None and (place.function or "<module>") == function else None
