"""Objects that a dataset asks for its samples, and what they keep: each worker has its own, and fills its own.

Read from the bytecode of the methods that workers call; nothing is run.
"""

from __future__ import annotations

import dis
import itertools
import types
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from torch import nn
from torch.utils.data import Dataset, Sampler

from memguard.facts import Place
from memguard.heap.attributes import attributes_of, is_user_class, mro_of, namespace_of
from memguard.heap.containers import container_of, length_of
from memguard.probes.host.datasets import place_of_attribute, unbounded_caches
from memguard.source.bounds import NO_CACHE, bounds_of

_SAMPLES = ("__getitem__", "__getitems__", "__iter__", "__next__")
"""Methods of a dataset that run in its workers."""
_UNNAMED = ("__getitem__", "__call__", "__contains__")
"""Methods of an object that are called without their names."""
_READS = ("LOAD_ATTR", "LOAD_METHOD")
_OTHERS = (Dataset, Sampler, nn.Module)
MAX_PREPARED = 8
"""Elements that are there in this process, from a first look at a sample; more were put there before the workers."""
MAX_OBJECTS = 64


def asked_caches(dataset: Any) -> Iterator[Place]:
    """Where an object of the user's, whose methods a dataset's samples come from, adds to a container of its own."""
    code = _reached(type(dataset), _SAMPLES)
    for name, asked in list(attributes_of(dataset).items())[:MAX_OBJECTS]:
        kind = type(asked)
        if not is_user_class(kind) or container_of(kind) is not None or issubclass(kind, _OTHERS):
            continue
        called = set(_called(code, name))
        if called:
            yield from _filled(asked, {one.co_name for one in _reached(kind, called)})


def _filled(asked: Any, methods: Collection[str]) -> Iterator[Place]:
    """Containers of an object that some of its methods fill, and methods of those that remember every answer."""
    for name, value in list(attributes_of(asked).items()):
        if name.startswith("__") or container_of(type(value)) in (None, "tuple") or length_of(value) > MAX_PREPARED:
            continue
        place, grows = place_of_attribute(asked, name, "set" if issubclass(type(value), set) else "list")
        if not grows or (place.function or "").rpartition(".")[2] not in methods:
            continue
        if not bounds_of(place.file, place.line, f"self.{name}") & NO_CACHE:
            yield place
    yield from (place for place in unbounded_caches(asked) if place.holder in methods)


def _reached(kind: type, names: Iterable[str]) -> list[types.CodeType]:
    """The code of some methods of a class, and of those of its own that they may call."""
    found: dict[str, types.CodeType] = {}
    queue = list(names)
    while queue:
        name = queue.pop()
        for base in mro_of(kind) if name not in found else ():
            method: Any = namespace_of(base).get(name)
            method = attributes_of(method).get("__wrapped__", method)
            code = getattr(method, "__code__", None) if type(method) is types.FunctionType else None
            if code is not None:
                found[name] = code
                queue.extend(set(code.co_names))
                break
    return list(found.values())


def _called(codes: Iterable[types.CodeType], attribute: str) -> Iterator[str]:
    """Methods that some code calls on what is under an attribute: ``self.features.get(i)``, ``self.features[i]``."""
    for code in codes:
        if attribute not in code.co_names:
            continue
        steps = [step for step in dis.get_instructions(code) if step.opname not in ("CACHE", "PUSH_NULL")]
        for first, second in itertools.pairwise(steps):
            if first.opname not in _READS or first.argval != attribute:
                continue
            yield from (second.argval,) if second.opname in _READS else _UNNAMED
