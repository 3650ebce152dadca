"""The storages that a forward returned, and what its graph holds."""

from __future__ import annotations

import torch
from torch import nn

from memguard.autograd.graph import saved_storages
from memguard.heap.containers import tensors_in
from memguard.torch_objects.storages import owned_storages, storage_of


def graph_bytes(module: nn.Module, output: object) -> int | None:
    """What the graph of an output saved on top of the model's own tensors; None where that is nothing."""
    saved: dict[int, int] = {}
    for tensor in tensors_in(output):
        if tensor.grad_fn is not None:
            saved.update(saved_storages(tensor.grad_fn))
    for key in owned_storages([module]):
        saved.pop(key, None)
    return sum(saved.values()) or None


def large_storages(output: object, least_bytes: int) -> list[tuple[torch.UntypedStorage, int]]:
    """The storages of an output from some size on, with their bytes."""
    found = []
    for tensor in (output,) if type(output) is torch.Tensor else tensors_in(output):
        storage = storage_of(tensor)
        if storage is not None and (nbytes := storage.nbytes()) >= least_bytes:
            found.append((storage, nbytes))
    return found
