"""Sizes: what a forward was given, what it returned and its graph holds; and from how many bytes on it is reported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from memguard.autograd.graph import saved_storages
from memguard.heap.attributes import is_tensor
from memguard.heap.containers import tensors_in
from memguard.torch_objects.storages import owned_storages, storage_of

DEVICE_SHARE, WITHOUT_DEVICE = 0.03, 64 * 1024**2
"""Of the device; where its size is unknown, so many bytes."""
PEAK_SHARE, LEAST = 0.2, 1024**2
"""Of a batch's peak: there the batch could be so much larger, however large the device is."""
REMARK_SHARE, LEAST_REMARK = 0.05, 256 * 1024
"""Of a batch's peak: from there on it is worth a remark, no more than that."""


def least_of_device(total_bytes: int | None) -> int:
    """Bytes from which on it is worth a word on a device of that size."""
    return int(DEVICE_SHARE * total_bytes) if total_bytes else WITHOUT_DEVICE


def least_of_peak(peak_bytes: int | None) -> int | None:
    """Bytes from which on it is worth a word for what it adds to a batch's peak; None where that is unknown."""
    return None if peak_bytes is None else max(int(PEAK_SHARE * peak_bytes), LEAST)


def least_of_remark(peak_bytes: int | None) -> int | None:
    """Bytes from which on it is worth a remark for what it adds to a batch's peak; None where that is unknown."""
    return None if peak_bytes is None else max(int(REMARK_SHARE * peak_bytes), LEAST_REMARK)


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
