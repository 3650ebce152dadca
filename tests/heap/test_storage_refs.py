"""Weak references to storages let them go, in every torch."""

import weakref

import pytest
import torch

from memguard.torch_objects import storages
from memguard.torch_objects.storages import StorageRef


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
