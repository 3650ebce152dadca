"""Sizes: what a forward was given, what it returned and its graph holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from memguard.autograd.graph import saved_storages
from memguard.heap.attributes import is_tensor
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


def first_large_storage(inputs: tuple[object, ...], least_bytes: int) -> tuple[torch.UntypedStorage, int] | None:
    """The first of those of a forward's inputs."""
    values: Iterable[Any] = inputs if inputs and type(inputs[0]) is torch.Tensor else tensors_in(inputs)
    for tensor in values:
        if not is_tensor(tensor):
            return next(iter(large_storages(inputs, least_bytes)), None)  # a nest after what is little
        storage = storage_of(tensor)
        if storage is not None and (nbytes := storage.nbytes()) >= least_bytes:
            return storage, nbytes
    return None
