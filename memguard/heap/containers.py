"""The elements of built-in containers and of subclasses of them, read past what the subclass defines; nests of them."""

from __future__ import annotations

import collections
import itertools
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.distributions import Distribution

from memguard.heap.attributes import (
    attributes_of,
    fields_of,
    is_tensor,
    is_tensor_class,
    is_user_class,
    mro_of,
    namespace_of,
)

FULL, SAMPLE = 64, 4
"""Containers of up to FULL elements are read whole, of longer ones SAMPLE from the front, the middle and the end."""

LATEST = 4
"""Elements at the end of a container that are looked at: a log may get a number between two tensors."""
MAX_TENSORS = 64
"""Tensors of one output that are looked at."""
MAX_ELEMENTS = 5_000
"""Elements of a nest that are looked at: a list may grow while it is, as that of a profile function does."""

CONTAINERS: tuple[type, ...] = (dict, list, tuple, set, frozenset, collections.deque)
_WRAPPERS: dict[type | None, str] = {collections.UserList: "list", collections.UserDict: "dict"}
_ATOMS: tuple[type, ...] = (
    *(int, float, complex, str, bytes, bytearray, memoryview, range, slice, type(None), type(...)),
    *(types.ModuleType, types.CodeType, types.BuiltinFunctionType, types.MethodDescriptorType),
    *(types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodWrapperType),
    *(weakref.ReferenceType, weakref.ProxyType, weakref.CallableProxyType),
)


def is_atom(kind: type) -> bool:
    """Whether objects of a type hold nothing that matters."""
    return issubclass(kind, _ATOMS)


def container_of(kind: type) -> str | None:
    """The built-in container that a type is or extends, by its name; None for any other type."""
    for container in CONTAINERS:
        if issubclass(kind, container):
            return container.__name__
    return _WRAPPERS.get(_wrapper_of(kind))


def length_of(obj: Any) -> int:
    """Number of elements of a built-in container or of a subclass of one."""
    obj = unwrapped(obj)
    for container in CONTAINERS:
        if issubclass(type(obj), container):
            return int(container.__len__(obj))  # type: ignore[attr-defined]
    return 0


def is_named(obj: object) -> bool:
    """Whether something is a dict whose first key is a text, as that of weights is."""
    return issubclass(type(obj), dict) and issubclass(type(next(iter(dict.keys(obj)), None)), str)  # type: ignore[arg-type]


def has_tensor_keys(obj: object) -> bool:
    """Whether something is a dict whose first key is a tensor: each tensor is another key, whatever it shows."""
    return issubclass(type(obj), dict) and is_tensor(next(iter(dict.keys(obj)), None))  # type: ignore[arg-type]


def _wrapper_of(kind: type) -> type | None:
    """``UserList`` or ``UserDict``, if a type is one: containers whose elements lie in an attribute."""
    for base in mro_of(kind):  # by identity: these have an abstract class's issubclass, which hashes the type
        if base is collections.UserList or base is collections.UserDict:
            return base
    return None


def unwrapped(obj: Any) -> Any:
    """The list or dict inside of a ``UserList`` or ``UserDict``; any other object itself."""
    if issubclass(type(obj), CONTAINERS) or _wrapper_of(type(obj)) is None:
        return obj
    inner = attributes_of(obj).get("data")
    return inner if type(inner) in (list, dict) else ()


def sample_of(obj: Any) -> Iterator[tuple[str | int | None, Any]]:
    """The elements of a built-in container or of a subclass, with their keys; some of a long one."""
    obj = unwrapped(obj)
    kind = type(obj)
    if issubclass(kind, dict):
        items = dict.items(obj)
        for key, value in _ends(len(items), items, lambda: reversed(items)):
            yield (key if type(key) is str or type(key) is int else None), value
            if not is_atom(type(key)):
                yield None, key
    elif issubclass(kind, (list, tuple, collections.deque)):
        base: Any = list if issubclass(kind, list) else tuple if issubclass(kind, tuple) else collections.deque
        for index in indices_of(base.__len__(obj)):
            try:
                yield None, base.__getitem__(obj, index)
            except IndexError:  # another thread made it shorter meanwhile
                return
    else:
        base = set if issubclass(kind, set) else frozenset
        for element in _ends(base.__len__(obj), base.__iter__(obj), None):
            yield None, element


def all_of(obj: Any) -> list[Any]:
    """Every element of a built-in container or of a subclass, of a dict its values, and its keys if they are tensors.

    Empty if it changes meanwhile.
    """
    obj = unwrapped(obj)
    for container in CONTAINERS:
        if issubclass(type(obj), container):
            try:
                if container is not dict:
                    return list(container.__iter__(obj))  # type: ignore[attr-defined]
                return [*dict.values(obj), *(dict.keys(obj) if has_tensor_keys(obj) else ())]
            except RuntimeError:
                break
    return []


def indices_of(length: int) -> Iterator[int]:
    """Which elements of a sequence are read: all, or those of a sample."""
    if length <= FULL:
        return iter(range(length))
    middle = length // 2
    return itertools.chain(range(SAMPLE), range(middle, middle + SAMPLE), range(length - SAMPLE, length))


def _ends(length: int, forward: Iterable[Any], backward: Callable[[], Iterator[Any]] | None) -> list[Any]:
    """Elements from the front and the back; a container that another thread changes meanwhile counts as empty."""
    try:
        if length <= FULL:
            return list(forward)
        return [*itertools.islice(forward, 2 * SAMPLE), *(itertools.islice(backward(), SAMPLE) if backward else ())]
    except RuntimeError:
        return []


def newest_of(container: object) -> object:
    """What was added to a container last; of a set any element."""
    return next(iter(latest_of(container)), None)


def latest_of(container: Any) -> tuple[Any, ...]:
    """The last few that were added to a container, the newest first; of a set any few."""
    kind = type(container)
    elements: Iterable[Any] = ()
    if issubclass(kind, list):
        elements = list.__reversed__(container)
    elif issubclass(kind, tuple):
        elements = reversed(tuple.__getitem__(container, slice(-LATEST, None)))
    elif issubclass(kind, collections.deque):
        elements = collections.deque.__reversed__(container)
    elif issubclass(kind, dict):
        elements = reversed(dict.keys(container) if has_tensor_keys(container) else dict.values(container))
    elif issubclass(kind, (set, frozenset)):
        elements = (set if issubclass(kind, set) else frozenset).__iter__(container)
    return tuple(itertools.islice(elements, LATEST))


def elements_of(value: Any) -> Iterable[Any]:
    """What a tuple, list, dict, dataclass or distribution holds, as it is iterated over; nothing of all else."""
    kind = type(value)
    if issubclass(kind, dict):
        return list(dict.values(value))
    if issubclass(kind, (tuple, list)):
        return iter((list.__iter__ if issubclass(kind, list) else tuple.__iter__)(value))
    if any(base is Distribution or "__dataclass_fields__" in namespace_of(base) for base in mro_of(kind)):
        return list(fields_of(value).values())
    return ()


def tensors_in(value: Any, depth: int = 6, *, most: int = MAX_TENSORS) -> Iterable[torch.Tensor]:
    """The tensors in a nest of tuples, lists, dicts, dataclasses, distributions; runs no code of the user's."""
    return (value,) if is_tensor(value) else _nested(value, depth, [most, MAX_ELEMENTS])


def modules_in(value: Any, depth: int, most: int | None = None) -> Iterator[torch.nn.Module]:
    """The outermost modules in a nest of containers and the user's objects, of which so many parts at most are read."""
    kind = type(value)
    if issubclass(kind, torch.nn.Module):
        yield value
    elif depth > 0 and not is_tensor_class(kind):
        own = fields_of(value).values() if is_user_class(kind) else ()
        parts = {id(part): part for part in (*elements_of(value), *own)}.values()
        for part in itertools.islice(parts, most):
            yield from modules_in(part, depth - 1, most)


def _nested(value: Any, depth: int, left: list[int]) -> Iterator[torch.Tensor]:
    if depth <= 0 or left[0] <= 0:
        return
    for item in elements_of(value):
        left[1] -= 1
        if left[1] < 0:
            return
        if not is_tensor(item):
            yield from _nested(item, depth - 1, left)
        elif left[0] > 0:
            left[0] -= 1
            yield item
