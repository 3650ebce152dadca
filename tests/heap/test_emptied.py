"""Tensors and storages that went: in every torch nothing fails on what is left of them, and nothing holds them."""

from __future__ import annotations

import weakref
from typing import NoReturn

import pytest
import torch

from memguard.evidence.oom.census import Census, collect
from memguard.heap.roots import roots_by_collector
from memguard.torch_objects import storages
from memguard.torch_objects.storages import StorageRef


def _refuse(tensor: torch.Tensor) -> NoReturn:
    raise RuntimeError("tensor does not have a device")


class Emptied(torch.Tensor):
    device = property(_refuse)  # type: ignore[assignment]
    is_leaf = property(_refuse)  # type: ignore[assignment]
    grad_fn = property(_refuse)  # type: ignore[assignment]


class Keeper:
    def __init__(self) -> None:
        self.kept = torch.ones(7, device="meta")


def test_those_who_hold_the_others_are_found() -> None:
    """The judge cannot ask it, and goes on to the next tensor."""
    emptied, keeper = [torch.ones(1).as_subclass(Emptied) for _ in range(3)], Keeper()
    roots = roots_by_collector(lambda tensor: 0 if tensor.device.type == "meta" and tensor.shape == (7,) else None)
    assert [root for root in roots if type(root) is Keeper] == [keeper]
    assert len(emptied) == 3


def test_the_look_at_an_error_of_memory_passes_them_over() -> None:
    """The other tensors are all there."""
    emptied, whole = torch.ones(1).as_subclass(Emptied), torch.ones(2)
    census = Census(lambda tensor: True, lambda address, nbytes: nbytes)
    with torch._C.DisableTorchFunctionSubclass():
        collect(census)
    found = {id(tensor) for tensor in census.tensors}
    assert id(whole) in found and id(emptied) not in found


@pytest.mark.parametrize("kind", [StorageRef, storages._ObjectRef])
def test_a_storage_and_its_object_go_together(kind: type) -> None:
    """By a view's death too, and after a backward that had saved it; the reference tells."""
    weight = torch.ones(4, requires_grad=True)
    tensor = torch.zeros(8)
    ref, watched = kind(tensor.untyped_storage()), weakref.ref(tensor.untyped_storage())
    loss = (tensor[:4] * weight).sum()
    del tensor
    assert not ref.expired(), "the graph holds it"
    loss.backward()
    del loss
    assert ref.expired() and watched() is None
