"""What nests of tuples, lists, dicts and dataclasses hold, without running code of the user's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from memguard.probes.objects.attributes import attributes_of, mro_of, namespace_of

MAX_TENSORS = 64
"""Tensors of one output that are looked at."""
MAX_ELEMENTS = 5_000
"""Elements of a nest that are looked at: a list may grow while it is, as that of a profile function does."""


def tensors_in(value: Any, depth: int = 6, *, most: int = MAX_TENSORS) -> Iterable[torch.Tensor]:
    """The tensors in a nest of tuples, lists, dicts and dataclasses, without running code of the user's.

    Args:
        value: The nest.
        depth: Levels that are entered.
        most: Tensors after which it ends.
    """
    return (value,) if issubclass(type(value), torch.Tensor) else _walk(value, depth, [most, MAX_ELEMENTS])


def _walk(value: Any, depth: int, left: list[int]) -> Iterator[torch.Tensor]:
    if depth <= 0 or left[0] <= 0:
        return
    for item in children_of(value):
        left[1] -= 1
        if left[1] < 0:
            return
        if not issubclass(type(item), torch.Tensor):
            yield from _walk(item, depth - 1, left)
        elif left[0] > 0:
            left[0] -= 1
            yield item


def children_of(value: Any) -> Iterable[Any]:
    """What a tuple, list, dict or dataclass holds, without running code of the user's; nothing of all else."""
    kind = type(value)
    if issubclass(kind, dict):
        return list(dict.values(value))
    if issubclass(kind, (tuple, list)):
        return iter((list.__iter__ if issubclass(kind, list) else tuple.__iter__)(value))
    if any("__dataclass_fields__" in namespace_of(base) for base in mro_of(kind)):
        return list(attributes_of(value).values())
    return ()
