"""Graphs through which no backward can run any more: a weight whose value they need was changed in place."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from memguard.autograd.graph import iter_nodes, raw_saved
from memguard.storages import storage_key

_PLAIN = (torch.Tensor, nn.Parameter)
_SAYS = "modified by an inplace operation"  # checked in torch 2.13


def needs_changed(node: Any, owned: Collection[int]) -> bool:
    """Whether a graph saved one of some storages, and torch refuses to give it back as it was then.

    A backward would fail there. Nobody can wait for it, and what keeps such a graph wants the value alone. Graphs that
    need no weight's value, and older versions of torch, never show it.

    Args:
        node: Where the graph ends.
        owned: The storages of weights, by their keys.
    """
    for current in iter_nodes((node,)):
        for saved, data in raw_saved(current):
            key = storage_key(data) if type(data) in _PLAIN else None  # a subclass would run code of its own
            if key is not None and key[0] in owned and _is_refused(saved):
                return True
    return False


def _is_refused(saved: Any) -> bool:
    unpack = getattr(saved, "unpack", None)
    if unpack is None:
        return False
    try:
        unpack()
    except RuntimeError as error:
        return _SAYS in str(error)
    return False
