"""Owners of device memory: parameters, gradients, optimizer states, buffers, the rest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, final

import torch
from torch import nn

from memguard.heap.containers import tensors_in
from memguard.torch_objects.module_parts import buffers_of, gradients_of, parameters_of
from memguard.torch_objects.storages import owned_storages, storage_key, storages_of

MAX_OF_ONE = 4096
"""Tensors of the state of one parameter: LBFGS keeps two for each of its last hundred steps at the first one."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Owners:
    """Bytes by owner; each storage counts once, for the first owner in this order. Other is None where the total is."""

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    buffers_bytes: int
    other_bytes: int | None
    """Activations, kept outputs and all else: the allocated bytes less the owners above."""

    def to_json(self) -> dict[str, Any]:
        """As JSON data, for a recording's ``owners`` line."""
        return asdict(self)


def count_owners(
    models: Iterable[nn.Module],
    optimizers: Iterable[torch.optim.Optimizer] = (),
    *,
    allocated_bytes: int | None = None,
    device_type: str | None = None,
) -> Owners:
    """Counts whose the memory is, exactly, by storage.

    Args:
        models: Root models.
        optimizers: Their optimizers.
        allocated_bytes: All that is allocated, for the rest.
        device_type: ``"cuda"`` to leave out what lies elsewhere; None counts everything (the virtual GPU, the CPU).
    """
    models, optimizers = list(models), list(optimizers)
    seen: set[int] = set()

    def count(tensors: Iterable[torch.Tensor | None]) -> int:
        total = 0
        for tensor in tensors:
            if tensor is None or (device_type is not None and tensor.device.type != device_type):
                continue
            local = getattr(tensor, "_local_tensor", tensor)  # DTensor (FSDP2): this rank's part; checked in torch 2.13
            key = storage_key(local)
            if key is not None and key[0] not in seen:
                seen.add(key[0])
                total += key[1]
        return total

    parameters = [parameter for model in models for parameter in parameters_of(model)]
    parameters_bytes = count(parameters)
    gradients_bytes = count(gradients_of(parameters))
    optimizer_bytes = count(tensor for optimizer in optimizers for tensor in state_of(optimizer))
    buffers_bytes = count(buffer for model in models for buffer in buffers_of(model))
    known = parameters_bytes + gradients_bytes + optimizer_bytes + buffers_bytes
    return Owners(
        parameters_bytes=parameters_bytes,
        gradients_bytes=gradients_bytes,
        optimizer_bytes=optimizer_bytes,
        buffers_bytes=buffers_bytes,
        other_bytes=None if allocated_bytes is None else max(allocated_bytes - known, 0),
    )


# Tensors of state per parameter; checked in torch 2.13.
_STATE = {"Adam": 2, "AdamW": 2, "NAdam": 2, "RAdam": 2, "Adamax": 2, "SparseAdam": 2, "Adadelta": 2, "Rprop": 2}


def state_tensors(name: str, group: dict[str, Any]) -> int | None:
    """Tensors of state per parameter of a class of torch.optim; None where that is not known."""
    if name == "SGD":
        return int(bool(group.get("momentum")))
    if name == "RMSprop":
        return 1 + bool(group.get("momentum")) + bool(group.get("centered"))
    tensors = 1 if name == "Adagrad" else _STATE.get(name)
    return None if tensors is None else tensors + bool(group.get("amsgrad"))


def named_states(optimizer: torch.optim.Optimizer) -> Iterator[tuple[object, object, torch.Tensor]]:
    """The tensors of an optimizer's state, each with its parameter and its key."""
    for parameter, state in list(vars(optimizer).get("state", {}).items()):
        for key, value in list(state.items()) if issubclass(type(state), dict) else [("state", state)]:
            for tensor in tensors_in(value, 3, most=MAX_OF_ONE):
                yield parameter, key, tensor


def state_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """The same without names."""
    return (tensor for _, _, tensor in named_states(optimizer))


def owned_by(models: Iterable[nn.Module], optimizers: Iterable[torch.optim.Optimizer] = ()) -> dict[int, int]:
    """Storages of what trains, with their bytes: parameters, buffers and gradients of models, states of optimizers.

    Raises:
        MemGuardError: The models have too many, as `owned_storages` says.
    """
    models = list(models)
    found = owned_storages(models)
    found.update(storages_of(gradients_of(parameter for model in models for parameter in parameters_of(model))))
    found.update(storages_of(tensor for optimizer in optimizers for tensor in state_of(optimizer)))
    return found
