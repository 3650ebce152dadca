"""Optimizer steps in loops without an optimizer: weights changed by hand."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any, final

import torch
from torch import nn

from memguard.autograd.graph import iter_nodes
from memguard.evidence.guarded_hook import Hook
from memguard.evidence.interface import Probe
from memguard.heap.parameters import ParameterAt, trainable
from memguard.torch_objects.hidden_hooks import without_number
from memguard.torch_objects.module_parts import gradient_of

MAX_NODES = 256
"""Nodes of a loss's graph in which a parameter is looked for."""
Place = ParameterAt | weakref.ref[torch.Tensor]
"""Where the tensor is: in a module, or anywhere."""


@final
class ManualStepsProbe(Probe):
    """Counts as an optimizer step what makes old graphs useless where no optimizer steps.

    One trainable tensor is followed. Its gradient was accumulated by a backward, and was then taken away, zeroed or
    replaced, or the tensor itself changed in place: the backward has served. It ends with the first optimizer step.
    """

    def _prepare(self) -> None:
        self._counted = 0
        self._place: Place | None = None
        self._followed = 0
        """The tensor's id."""
        self._handle: Any = None
        self._after: tuple[int, int, int] | None = None
        """Its version, its gradient's id and version after the last backward; None where that has served."""

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Looks at the tensor; follows one of the model's, if there is none yet."""
        if module.training and torch.is_grad_enabled():
            self._look(trainable(module))

    def on_backward_start(self, loss: torch.Tensor) -> None:
        """Where there is no module: likewise, with one that the loss depends on."""
        if not self.watch.models:
            nodes = iter_nodes((loss.grad_fn,), MAX_NODES)
            leaves = (leaf for node in nodes if isinstance(leaf := getattr(node, "variable", None), torch.Tensor))
            self._look(weakref.ref(leaf) for leaf in leaves)

    def remove(self) -> None:
        """Takes the hook off the tensor."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.remove()

    def _look(self, places: Iterable[Place]) -> None:
        if self.watch.optimizer_steps != self._counted:
            self.remove()
            self.unsubscribe("on_forward_start", "on_backward_start")
            return
        tensor = self._place() if self._place is not None else None
        if tensor is None or id(tensor) != self._followed:
            self._follow(places)
        elif self._after is not None and self._after != _state_of(tensor):
            self._after = None
            self._counted += 1
            self.watch.optimizer_steps += 1

    def _follow(self, places: Iterable[Place]) -> None:
        self.remove()
        place = next(iter(places), None)
        tensor = place() if place is not None else None
        register = getattr(tensor, "register_post_accumulate_grad_hook", None)
        # Within `functional_call` it is another tensor, which has a graph and takes no such hook.
        if register is not None and tensor is not None and tensor.is_leaf:
            self._place, self._followed, self._after = place, id(tensor), None
            self._handle = without_number(register, Hook(self._accumulated))

    def _accumulated(self, tensor: torch.Tensor) -> None:
        self._after = _state_of(tensor)


def _state_of(tensor: torch.Tensor) -> tuple[int, int, int] | None:
    """What changes when a gradient is taken away, zeroed or replaced, or the tensor itself is changed in place."""
    gradient = gradient_of(tensor)
    return (tensor._version, id(gradient), gradient._version) if gradient is not None else None
