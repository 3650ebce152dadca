"""Reference cycles that the collector found: which hold the most tensors, and where to break them.

A circle is a strongly connected part of the garbage. Its references that the user's code makes are the attributes of
the user's instances and the variables that closures close over; one that all its circles run through is the one to
change. Of several such, a single object is named before a list of them (a child's reference to its parent, not the
parent's children), an attribute before the closure in it, a part's way back to what makes it before that one's way to
the part, and the statement that gives ``self`` away before others.
Of circles that have no such reference, of containers alone, the statement counts that puts something under a key.
"""

from __future__ import annotations

import collections
import functools
import gc
import math
import sys
import types
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import torch
from torch import nn

from memguard.evidence.cycles.strongly_connected import Edge, circular_parts, opens, reached_from
from memguard.evidence.naming.names import user_files
from memguard.heap.attributes import attributes_of, is_tensor, is_user_class, mro_of, namespace_of
from memguard.heap.frames import is_user_file
from memguard.records.facts import NOWHERE, Place
from memguard.source.circles import (
    CALLS,
    STORES,
    Closing,
    KeyStatement,
    find_attribute_closing,
    find_key_statements,
)
from memguard.source.model import SourceModel, Sources
from memguard.torch_objects.storages import storages_of

MAX_OBJECTS = 40_000
"""Of the garbage are looked at: what a hundred batches left is like what one left."""
MAX_STEPS = 200_000
MAX_LABELS, MAX_WAY = 16, 64
_CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque)

Label = tuple[int, str]
"""A reference of the user's: the id of an instance's class and the attribute, or of a function's code."""
Reference = tuple[int, "Label | None"]


@final
@dataclass(frozen=True, slots=True)
class Circle:
    """The circles of one kind: plain data."""

    place: Place
    text: str
    count: int
    """How many there are."""
    bytes: int
    """Of the tensors that hang on them."""
    is_closed_there: bool
    """Whether a statement was found at the place, or only a class."""
    parts: tuple[str, ...] = ()
    """Classes and closures of the user's that it runs through."""


@final
@dataclass(slots=True, eq=False)
class _Group:
    """Circles made of the same references."""

    first: list[int]
    """Objects of the first of them."""
    count: int = 0
    storages: dict[int, int] = field(default_factory=dict)


def find_circle(garbage: list[Any]) -> Circle | None:
    """The circles of the user's that hold the most; None where there are none."""
    objects = garbage[-MAX_OBJECTS:]
    numbers = {id(obj): index for index, obj in enumerate(objects)}
    edges = [list(_edges(obj, numbers)) for obj in objects]
    groups: dict[frozenset[Label], _Group] = {}
    plain: dict[frozenset[str], _Group] = {}
    steps = MAX_STEPS
    for part in circular_parts(edges):
        inside = set(part)
        labels = {label for index in part for target, label in edges[index] if label is not None and target in inside}
        if labels:
            group = groups.setdefault(frozenset(labels), _Group(part))
        elif is_plain(part, objects):
            keys = {str(key) for ways in keys_of(part, edges, objects).values() for _, key in ways}
            group = plain.setdefault(frozenset(keys), _Group(part))
        else:
            continue
        group.count += 1
        if steps > 0:
            reached = reached_from(part, edges, steps)
            steps -= len(reached)
            group.storages.update(storages_of(o for i in reached if is_tensor(o := objects[i])))
    best = max(groups.values(), key=_worth, default=None)
    bare = max(plain.values(), key=_worth, default=None)
    if bare is not None and _worth(bare) > ((0, math.inf) if best is None else _worth(best)):
        named = name_circle(bare.first, keys_of(bare.first, edges, objects), objects)
        if named is not None:
            return Circle(*named, bare.count, sum(bare.storages.values()), is_closed_there=True)
    if best is None:
        return None
    place, text, is_closed_there = _break(best.first, edges, objects)
    parts = {_part(objects[index]) for index in best.first if any(label is not None for _, label in edges[index])}
    return Circle(place, text, best.count, sum(best.storages.values()), is_closed_there, parts=tuple(sorted(parts)))


def _worth(group: _Group) -> tuple[int, float]:
    return sum(group.storages.values()), group.count


def _part(obj: Any) -> str:
    return str(obj.__qualname__) if type(obj) is types.FunctionType else type(obj).__name__


def _edges(obj: Any, numbers: dict[int, int]) -> Iterator[Reference]:
    """What an object refers to within the garbage, and how the user's code calls that."""
    kind = type(obj)
    if kind is types.FunctionType and is_user_file(obj.__code__.co_filename):
        label = (id(obj.__code__), "")
        yield from ((numbers[id(one)], label) for one in gc.get_referents(obj) if id(one) in numbers)
    elif _is_instance(kind):
        for name, value in _named(obj):
            if id(value) in numbers:
                yield numbers[id(value)], (id(kind), name)
        if issubclass(kind, _CONTAINERS):
            yield from ((numbers[id(one)], None) for one in gc.get_referents(obj) if id(one) in numbers)
    else:
        yield from ((numbers[id(one)], None) for one in gc.get_referents(obj) if id(one) in numbers)


def _is_instance(kind: type) -> bool:
    return is_user_class(kind) and not issubclass(kind, (type, torch.Tensor, BaseException))


def _named(obj: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of an instance of the user's, those in slots and a module's children too."""
    for name, value in list(attributes_of(obj).items()):
        if name == "_modules" and issubclass(type(obj), nn.Module) and issubclass(type(value), dict):
            yield from list(dict.items(value))
        else:
            yield str(name), value
    for base in mro_of(type(obj)):
        for name, slot in namespace_of(base).items():
            if type(slot) is types.MemberDescriptorType and is_user_class(base):
                try:
                    yield name, slot.__get__(obj)
                except AttributeError:  # it was never set
                    continue


def _break(part: list[int], edges: list[list[Reference]], objects: list[Any]) -> tuple[Place, str, bool]:
    """Of the references in a circle the one to change: its place, in words, and whether a statement was found."""
    inside = set(part)
    kinds: dict[Label, tuple[int, list[int]]] = {}
    """Of each: an object that has it, and what it leads to."""
    for index in part:
        for target, label in edges[index]:
            if label is not None and target in inside:
                kinds.setdefault(label, (index, []))[1].append(target)
    found = []
    for label in list(kinds)[:MAX_LABELS]:
        owner, targets = kinds[label]
        closing, rank = _look(objects[owner], label[1], targets, edges, objects, inside)
        found.append((label, objects[owner], closing, rank))
    sites: dict[object, set[Label]] = {}  # one line of a base class serves all that inherit it
    for label, _, closing, _ in found:
        sites.setdefault((closing.place.file, closing.place.line, label[1]), set()).add(label)
    breaks = {label for labels in sites.values() if opens(part, edges, labels, inside) for label in labels}
    made = frozenset[str]().union(*(closing.made for _, _, closing, _ in found))
    _, obj, closing, _ = min(found, key=lambda one: (one[0] not in breaks, *_order(one[2], one[3], one[1], made)))
    name = closing.place.holder
    text = f"{name} <- {type(obj).__name__}" if type(obj) is not types.FunctionType else f"the closure {name}"
    return closing.place, text, closing.score > 0


def _order(closing: Closing, rank: int, owner: object, made: Collection[str]) -> tuple[int, bool, bool, int]:
    """What is named first: the way back from a part to the object that makes it, for a weak reference is enough there.

    Of equals it is the statement further down, which closes what the other one has begun; of several ways back the
    first one.
    """
    back = rank == 0 and closing.is_given and type(owner).__name__ in made
    line = closing.place.line or 0
    return rank, not back, not (rank == 0 and closing.score >= STORES), line if back else -line


def _look(
    obj: Any, name: str, targets: list[int], edges: list[list[Reference]], objects: list[Any], inside: set[int]
) -> tuple[Closing, int]:
    """Where a reference is made, and how far it is from being the one to change: 0 is nearest."""
    kind = type(obj)
    if kind is types.FunctionType:
        code = obj.__code__
        place = Place(file=code.co_filename, line=code.co_firstlineno, function=code.co_name, holder=obj.__qualname__)
        return Closing(place, 1.0), 3
    methods, lines = _way_back(targets, edges, objects, inside)
    closing = find_closing(kind, name, methods, lines)
    closing = closing._replace(place=replace(closing.place, holder=f"{kind.__name__}.{name}"))
    ends = [type(objects[target]) for target in targets]
    direct = (types.FunctionType, types.MethodType, functools.partial)
    if all(end in direct or _is_instance(end) for end in ends):
        return closing, 0
    if any(issubclass(end, _CONTAINERS) for end in ends):
        return closing, 1
    given = closing.score >= CALLS if lines else bool(methods)
    return closing, 2 if given else 4  # a library's object, to which a method or closure was given, or one unknown


def _way_back(
    targets: list[int], edges: list[list[Reference]], objects: list[Any], inside: set[int]
) -> tuple[set[str], set[int]]:
    """The bound methods and closures behind a reference: their names, and the lines of the closures."""
    methods: set[str] = set()
    lines: set[int] = set()
    seen, front = set(targets[:MAX_WAY]), list(targets[:MAX_WAY])
    while front:
        index = front.pop()
        obj = objects[index]
        if type(obj) is types.MethodType and type(obj.__func__) is types.FunctionType:
            methods.add(obj.__func__.__name__)
        elif type(obj) is types.FunctionType:
            methods.add(obj.__name__)
            lines.add(obj.__code__.co_firstlineno)
        for target, label in edges[index]:
            if label is None and target in inside and target not in seen and len(seen) < MAX_WAY:
                seen.add(target)
                front.append(target)
    return methods, lines


def find_closing(kind: type, attribute: str, methods: Collection[str] = (), lines: Collection[int] = ()) -> Closing:
    """The statement that makes an attribute of a user's class lead back to its object.

    Args:
        kind: The class.
        attribute: Name of the attribute.
        methods: Names of bound methods, and of functions, on the way back.
        lines: First lines of closures on the way back.
    """
    found: list[Closing] = []
    for base in mro_of(kind):
        if base is object or not is_user_class(base):
            continue
        model = _model_of(base)
        at = find_attribute_closing(model, base.__name__, attribute, methods, lines) if model is not None else None
        if at is not None:
            found.append(at._replace(place=replace(at.place, function=kind.__name__)))
    return max(found, key=lambda one: one.score, default=Closing(NOWHERE, 0.0))


def _model_of(kind: type) -> SourceModel | None:
    module = sys.modules.get(str(namespace_of(kind).get("__module__")))
    file = attributes_of(module).get("__file__") if module is not None else None
    return SourceModel.of(file) if type(file) is str else None


MAX_KEYS, MAX_FILES = 16, 256
_LISTS = (list, tuple, set, frozenset, collections.deque)
_BY_ATTRIBUTE = (types.SimpleNamespace, torch.Tensor)
_PLAIN = (dict, *_LISTS, *_BY_ATTRIBUTE)


def is_plain(part: Sequence[int], objects: Sequence[Any]) -> bool:
    """Whether a circle is made of containers, and of what may carry attributes beside them."""
    return all(issubclass(type(objects[index]), _PLAIN) for index in part)


def keys_of(part: Sequence[int], edges: Sequence[Sequence[Edge]], objects: Sequence[Any]) -> dict[int, list[Edge]]:
    """The references within a circle, each with the key of the dict that it stands under."""
    inside = {id(objects[index]): index for index in part}
    found: dict[int, list[Edge]] = {}
    for index in part:
        keyed = {inside[id(value)]: key for key, value in _items(objects[index]) if id(value) in inside}
        found[index] = [(to, keyed.get(to)) for to, _ in edges[index] if id(objects[to]) in inside]
    return found


def name_circle(part: Sequence[int], keyed: dict[int, list[Edge]], objects: Sequence[Any]) -> tuple[Place, str] | None:
    """The place and the words for a circle; None where no statement of the user's makes it.

    Args:
        part: Its objects.
        keyed: What `keys_of` gave.
        objects: All objects.
    """
    ends: dict[str, bool] = {}
    """Of each key whether only lists stand under it; those that fill a list are many to one."""
    for edges in keyed.values():
        for to, key in edges:
            if isinstance(key, str) and (key in ends or len(ends) < MAX_KEYS):
                ends[key] = ends.get(key, True) and issubclass(type(objects[to]), _LISTS)
    sources = Sources()
    files = list(dict.fromkeys(user_files()))[:MAX_FILES]
    if not ends:
        return None
    by_attribute = any(_has_attributes(type(objects[index])) for index in part)
    others = {str(key) for index in part for key, _ in _items(objects[index])} - set(ends)
    statements = find_key_statements(list(ends), others, files, sources, by_attribute=by_attribute)
    if not statements:
        return None
    inside = set(part)
    table: list[Sequence[Edge]] = [()] * (max(part) + 1)
    for index, edges in keyed.items():
        table[index] = edges
    breaks = {key: opens(part, table, {key}, inside) for key in statements}

    def order(item: tuple[str, KeyStatement]) -> tuple[bool, bool, float, int]:
        key, statement = item
        return not breaks[key], ends[key], -statement.score, -(statement.place.line or 0)

    _, statement = min(statements.items(), key=order)
    return statement.place, f"{statement.place.holder} <- dict"


def _has_attributes(kind: type) -> bool:
    """Whether what stands under a key may have been set by a dot; a dict of the user's own may pass that on."""
    return issubclass(kind, _BY_ATTRIBUTE) or (issubclass(kind, dict) and is_user_class(kind))


def _items(obj: Any) -> list[tuple[object, Any]]:
    """What stands under names in it."""
    kind = type(obj)
    if issubclass(kind, dict):
        return [(key, value) for key, value in list(dict.items(obj)) if type(key) is str]
    return list(attributes_of(obj).items()) if issubclass(kind, _BY_ATTRIBUTE) else []
