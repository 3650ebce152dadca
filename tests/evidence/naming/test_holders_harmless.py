"""Naming leaves nothing behind and changes nothing."""

import sys
import weakref

import torch
from torch import nn

from memguard.autograd.reach import Reach
from memguard.evidence.naming.holders import HolderSearch
from memguard.evidence.naming.names import user_files

KEY = "tests.evidence.harmless"


def named_then_dropped() -> list[weakref.ref[torch.Tensor]]:
    """Names the holder of three losses, drops them, and returns weak references to them."""
    model = nn.Linear(4, 1)
    kept = []
    for _ in range(3):
        loss = model(torch.ones(2, 4)).sum()
        assert loss.grad_fn is not None
        loss.grad_fn.metadata[KEY] = "old"
        kept.append(loss)
    del loss
    reach = Reach(KEY, lambda mark: mark == "old")
    (holder,) = HolderSearch(models=[model]).find(reach, passes=reach.passes)
    del reach
    assert (holder.place.holder, holder.tensors, holder.length) == ("kept", 3, 3)
    refs = [weakref.ref(tensor) for tensor in kept]
    del kept
    return refs


def test_tensors_die_with_their_last_name_after_naming(without_collector: None) -> None:
    """No reference to a tensor stays in a frame, a cache or a cycle; the collector is not needed."""
    assert [ref() for ref in named_then_dropped()] == [None, None, None]


def test_the_collectors_way_leaves_nothing_either(without_collector: None) -> None:
    """Asking the garbage collector for referrers keeps nothing alive, found or not."""

    def hide() -> weakref.ref[torch.Tensor]:
        tensor = torch.ones(3)
        HolderSearch().find(lambda other: None, graph=False)
        return weakref.ref(tensor)

    assert hide()() is None


def test_no_module_attribute_is_touched() -> None:
    """A module with a `__getattr__` of its own is not asked for anything while files are listed."""
    import types

    class Lazy(types.ModuleType):
        def __getattribute__(self, name: str) -> object:
            raise AssertionError(f"{name} was asked for")

    sys.modules["lazy_for_this_test"] = Lazy("lazy_for_this_test")
    try:
        assert __file__ in user_files()
    finally:
        del sys.modules["lazy_for_this_test"]


def test_judge_that_knows_nobody() -> None:
    """Without a tensor that matters nobody is named."""
    assert HolderSearch().find(lambda tensor: None, collector=False) == ()
