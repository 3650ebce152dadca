"""Parameters remembered by their place: a weak reference to one would make `torch.utils.swap_tensors` refuse it.

Modules are converted that way where their weights are quantized or distributed, or where the program asks for it.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Iterator
from typing import final

import torch
from torch import nn

from memguard.heap.roots import instances_of
from memguard.torch_objects.module_parts import children_of, parameters_of, parts_of, stepped_by


@final
class ParameterAt:
    """The place of a parameter: called, it gives the parameter that is there now."""

    __slots__ = ("_module", "_name")

    def __init__(self, module: nn.Module, name: str) -> None:
        self._module, self._name = weakref.ref(module), name

    def __call__(self) -> nn.Parameter | None:
        """The parameter; None if it, or its module, is gone."""
        module = self._module()
        if module is None or self._name not in module._parameters:
            return None
        return module._parameters[self._name]


def gradients_at(places: Iterable[ParameterAt]) -> list[torch.Tensor]:
    """The gradients of the parameters at some places, where they have one."""
    found, ref = [], None
    parameters: dict[str, nn.Parameter | None] = {}
    for place in places:
        if place._module is not ref:  # as a rule the next one is of the same module, to which there is one reference
            ref = place._module
            module = ref()
            parameters = module._parameters if module is not None else {}
        if place._name not in parameters:  # a scripted module's mapping has no `get`
            continue
        parameter = parameters[place._name]
        if parameter is None or not (parameter.is_leaf or parameter.retains_grad):  # as `gradient_of`
            continue
        if (gradient := parameter.grad) is not None:
            found.append(gradient)
    return found


def trainable(module: nn.Module) -> Iterator[ParameterAt]:
    """The places of a module's parameters that want gradients, in the order of ``module.parameters()``."""
    for part in parts_of(module):
        for name, parameter in part._parameters.items():
            if parameter is not None and parameter.requires_grad:
                yield ParameterAt(part, name)


def held_parameters(optimizers: Iterable[torch.optim.Optimizer] | None = None) -> set[int]:
    """Ids of the parameters that these optimizers hold; without them, of those that any one of the process holds."""
    return set(map(id, stepped_by(instances_of(torch.optim.Optimizer) if optimizers is None else optimizers)))


def is_unheld(module: nn.Module, held: Collection[int]) -> bool:
    """Whether none of a module's parameters is among those held, as `held_parameters` has them."""
    return not any(id(parameter) in held for parameter in parameters_of(module))


MAX_AROUND = 64


def frozen_wholes(modules: Iterable[nn.Module], held: Collection[int]) -> dict[int, nn.Module]:
    """For each module, by its identity, the outermost module around it of which no parameter is held; else itself.

    A model whose methods are called, and never the model, is known by its parts alone. Goes over all objects.
    """
    around: dict[int, nn.Module] = {}
    for outer in instances_of(nn.Module):
        for child in children_of(outer):
            around.setdefault(id(child), outer)
    wholes: dict[int, nn.Module] = {}
    for module in modules:
        whole = module
        for _ in range(MAX_AROUND):
            wider = around.get(id(whole))
            if wider is None or not is_unheld(wider, held):
                break
            whole = wider
        wholes[id(module)] = whole
    return wholes


def is_optimized(models: Iterable[nn.Module], optimizers: Iterable[torch.optim.Optimizer]) -> bool:
    """Whether any optimizer holds a parameter of the models: one of these, or one of the process, which takes long."""
    own = {id(parameter) for model in models for parameter in parameters_of(model)}
    return not own.isdisjoint(held_parameters(optimizers)) or not own.isdisjoint(held_parameters())
