"""The garbage collector as a last source: objects that lead to a tensor but that no root reaches."""

from __future__ import annotations

import gc
import itertools
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import torch

from memguard.heap.attributes import is_user_class
from memguard.heap.frames import is_user_file

T = TypeVar("T")

MAX_CLIMB = 6
MAX_FRONT = 8
MAX_OBJECTS = 500_000


def roots_by_collector(
    judge: Callable[[torch.Tensor], int | None], is_late: Callable[[], bool] = lambda: False
) -> list[Any]:
    """Generators, functions and instances of the user's classes above the tensors a judge recognises.

    Walking down from them names what holds the tensors. Each step up goes over all objects that there are, some 10 to
    30 ms, so it is asked last.

    Args:
        judge: Recognises the tensors.
        is_late: Asked before each step; whether there is no time left for it.
    """
    front: list[Any] = []
    for tensor in instances_of(torch.Tensor, max_objects=MAX_OBJECTS):
        try:
            if judge(tensor) is None:
                continue
        except RuntimeError:  # one that cannot be asked; torch 2.4 leaves emptied ones, which nobody refers to
            continue
        front.append(tensor)
        if len(front) == MAX_FRONT or is_late():
            break
    roots: list[Any] = []
    seen: set[int] = set()
    for _ in range(MAX_CLIMB):
        if not front or is_late():
            break
        referrers = gc.get_referrers(*front)
        above: list[Any] = []
        for referrer in referrers:
            if referrer is front or id(referrer) in seen or type(referrer) is types.FrameType:
                continue
            seen.add(id(referrer))
            if _is_root(referrer):
                roots.append(referrer)
            elif not issubclass(type(referrer), (types.ModuleType, type)):
                above.append(referrer)
        if roots:
            break
        front = above[:MAX_FRONT]
    return roots


def instances_of(*bases: type[T], max_objects: int | None = None) -> list[T]:
    """Every object of some classes, or of one below them, that the collector knows; none in a process of more objects.

    Each call goes over all objects, some tens of milliseconds. The loop runs in C, and by id: to hash a class may run
    the user's code.
    """
    objects = gc.get_objects()
    if max_objects is not None and len(objects) > max_objects:
        return []
    wanted = {id(kind) for kind in _with_those_below(bases)}
    return list(itertools.compress(objects, map(wanted.__contains__, map(id, map(type, objects)))))


def _with_those_below(kinds: Iterable[type]) -> Iterator[type]:
    for kind in kinds:
        yield kind
        yield from _with_those_below(type.__subclasses__(kind))


def _is_root(obj: Any) -> bool:
    kind = type(obj)
    if kind is types.GeneratorType:
        return is_user_file(obj.gi_code.co_filename)
    if kind is types.CoroutineType:
        return is_user_file(obj.cr_code.co_filename)
    if kind is types.AsyncGeneratorType:
        return is_user_file(obj.ag_code.co_filename)
    if kind is types.FunctionType:
        return is_user_file(obj.__code__.co_filename)
    return issubclass(kind, BaseException) or is_user_class(kind)
