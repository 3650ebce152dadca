"""Weights changed by hand: a loop without an optimizer makes its steps all the same."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, final

import torch
from torch import nn

from memguard.facts import Fact
from memguard.probes.hook import Hook
from memguard.probes.interface import Probe, Watch
from memguard.probes.sizes import walk

MAX_NODES = 256
"""Nodes of a loss's graph in which a parameter is looked for."""


@final
class ManualStepsProbe(Probe):
    """Counts as an optimizer step what makes old graphs useless where no optimizer steps.

    One trainable tensor is followed. Its gradient was accumulated by a backward, and was then taken away, zeroed or
    replaced, or the tensor itself changed in place: the backward has served. It ends with the first optimizer step.
    """

    name: ClassVar[str] = "manual steps"

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._counted = 0
        self._parameter: weakref.ref[torch.Tensor] | None = None
        self._handle: Any = None
        self._gradient: weakref.ref[torch.Tensor] | None = None
        self._versions = (0, 0)
        """Of the tensor and of its gradient, after the last backward."""

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Looks at the tensor; follows one of the model's, if there is none yet."""
        if module.training and torch.is_grad_enabled():
            self._look(parameter for parameter in module.parameters() if parameter.requires_grad)

    def on_backward_start(self, loss: torch.Tensor) -> None:
        """Where there is no module: likewise, with one that the loss depends on."""
        if not self.watch.models:
            nodes = walk(loss.grad_fn, MAX_NODES) if loss.grad_fn is not None else ()
            self._look(leaf for node in nodes if isinstance(leaf := getattr(node, "variable", None), torch.Tensor))

    def remove(self) -> None:
        """Takes the hook off the tensor."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.remove()

    def _look(self, parameters: Iterable[torch.Tensor]) -> None:
        if self.watch.optimizer_steps != self._counted:
            self.remove()
            self.stop_hearing("on_forward_start", "on_backward_start")
            return
        parameter = self._parameter() if self._parameter is not None else None
        if parameter is None:
            self._follow(parameters)
        elif self._gradient is not None and self._has_served(parameter):
            self._gradient = None
            self._counted += 1
            self.watch.optimizer_steps += 1

    def _follow(self, parameters: Iterable[torch.Tensor]) -> None:
        self.remove()
        parameter = next(iter(parameters), None)
        register = getattr(parameter, "register_post_accumulate_grad_hook", None)
        if parameter is not None and register is not None:
            self._parameter = weakref.ref(parameter)
            self._handle = register(Hook(self._accumulated))

    def _accumulated(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            self._gradient = weakref.ref(parameter.grad)
            self._versions = (parameter._version, parameter.grad._version)

    def _has_served(self, parameter: torch.Tensor) -> bool:
        gradient = parameter.grad
        if gradient is None or self._gradient is None or gradient is not self._gradient():
            return True
        return (parameter._version, gradient._version) != self._versions
