"""The datasets that the program reads from, and what they hold: looked up once, by the loaders' iterators.

`_BaseDataLoaderIter` and its attributes are private; checked in torch 2.13.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import torch.utils.data.dataloader as loaders

from memguard.facts import NOWHERE, Place
from memguard.probes.sought import Hints, Sought
from memguard.probes.statements import find_statement
from memguard.probes.syntax import Sources

_WRAPPED = ("dataset", "datasets", "data_source")
MAX_DATASETS = 16


@final
@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """One loader in use. Holds its dataset: drop it at once."""

    dataset: Any
    workers: int
    batch_size: int | None


def readings() -> list[Reading]:
    """The loaders that are being iterated over; some ten milliseconds, so it is asked once."""
    kind = getattr(loaders, "_BaseDataLoaderIter", None)
    if kind is None:
        return []
    found = []
    for thing in gc.get_objects():
        if issubclass(type(thing), kind):
            state = vars(thing)
            sampler = state.get("_index_sampler")
            size = (
                vars(sampler).get("batch_size") if hasattr(type(sampler), "__dict__") and _has_dict(sampler) else None
            )
            workers = len(state.get("_workers") or ())
            found.append(Reading(state.get("_dataset"), workers, size if type(size) is int else None))
    return found


def have_workers() -> bool:
    """Whether this process has children of `multiprocessing`; costs nothing."""
    module = sys.modules.get("multiprocessing.process")
    return bool(getattr(module, "_children", None))


def unwrap(dataset: Any) -> Iterator[Any]:
    """A dataset and those that it wraps: subsets, concatenations, transforms of the user's."""
    queue = [dataset]
    seen: set[int] = set()
    while queue and len(seen) < MAX_DATASETS:
        one = queue.pop(0)
        if one is None or id(one) in seen or not _has_dict(one):
            continue
        seen.add(id(one))
        yield one
        for name in _WRAPPED:
            inner = vars(one).get(name)
            queue.extend(inner[:MAX_DATASETS] if type(inner) in (list, tuple) else [inner])


def place_of_attribute(dataset: Any, name: str) -> tuple[Place, bool]:
    """Where a dataset's attribute gets what it holds, and whether that adds to it after the dataset was made."""
    files = [file for file in map(_file_of, type(dataset).__mro__) if file is not None]
    classes = tuple(kind.__name__ for kind in type(dataset).__mro__[:-1])
    sought = Sought(name=name, attribute=True, classes=classes, base="self", kinds=("list", "tensor"))
    statement = find_statement(sought, files, Sources(), Hints(graph=False, numbers=True)) if files else None
    if statement is None:
        return NOWHERE, False
    place = Place(
        file=statement.file, line=statement.line, function=statement.function, holder=name, source=statement.source
    )
    return place, statement.grows and not statement.quiet


def unbounded_caches(dataset: Any) -> Iterator[Place]:
    """Methods of a dataset that remember every answer: ``lru_cache(maxsize=None)``, ``functools.cache``."""
    for kind in type(dataset).__mro__[:-1]:
        for name, value in vars(kind).items():
            if type(value) is not functools._lru_cache_wrapper or value.cache_info().maxsize is not None:
                continue
            code = getattr(value.__wrapped__, "__code__", None)
            if code is not None:
                yield Place(file=code.co_filename, line=code.co_firstlineno, function=name, holder=name)


def _file_of(kind: type) -> str | None:
    for value in vars(kind).values():
        code = getattr(value, "__code__", None) if type(value).__name__ == "function" else None
        if code is not None:
            return str(code.co_filename)
    return None


def _has_dict(thing: object) -> bool:
    try:
        return type(object.__getattribute__(thing, "__dict__")) is dict
    except AttributeError:
        return False
