"""Reference cycles that the collector found: which hold the most tensors, and where to break them.

A circle is a strongly connected part of the garbage. Its references that the user's code makes are the attributes of
the user's instances and the variables that closures close over; one that all its circles run through is the one to
change. Of several such, a single object is named before a list of them (a child's reference to its parent, not the
parent's children), an attribute before the closure in it, a part's way back to what makes it before that one's way to
the part, and the statement that gives ``self`` away before others.
"""

from __future__ import annotations

import collections
import functools
import gc
import types
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import torch
from torch import nn

from memguard.heap.attributes import fields_of, file_of, is_tensor, is_user_class, mro_of
from memguard.heap.frames import is_user_file
from memguard.records.facts import NOWHERE, Place
from memguard.source.circles import CALLS, STORES, Closing, find_attribute_closing
from memguard.source.model import SourceModel
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
    steps = MAX_STEPS
    for part in circular_parts(edges):
        inside = set(part)
        labels = {label for index in part for target, label in edges[index] if label is not None and target in inside}
        if not labels:
            continue
        group = groups.setdefault(frozenset(labels), _Group(part))
        group.count += 1
        if steps > 0:
            reached = reached_from(part, edges, steps)
            steps -= len(reached)
            group.storages.update(storages_of(o for i in reached if is_tensor(o := objects[i])))
    best = max(groups.values(), key=lambda one: (sum(one.storages.values()), one.count), default=None)
    if best is None:
        return None
    place, text, is_closed_there = _break(best.first, edges, objects)
    named = [objects[index] for index in best.first if any(label is not None for _, label in edges[index])]
    parts = {str(one.__qualname__) if type(one) is types.FunctionType else type(one).__name__ for one in named}
    return Circle(place, text, best.count, sum(best.storages.values()), is_closed_there, parts=tuple(sorted(parts)))


def _edges(obj: Any, numbers: dict[int, int]) -> Iterator[Reference]:
    """What an object refers to within the garbage, and how the user's code calls that."""
    kind, label = type(obj), None
    if kind is types.FunctionType and is_user_file(obj.__code__.co_filename):
        label = (id(obj.__code__), "")
    elif _is_instance(kind):
        for name, value in _named(obj):
            if id(value) in numbers:
                yield numbers[id(value)], (id(kind), name)
        if not issubclass(kind, _CONTAINERS):
            return
    yield from ((numbers[id(one)], label) for one in gc.get_referents(obj) if id(one) in numbers)


def _is_instance(kind: type) -> bool:
    return is_user_class(kind) and not issubclass(kind, (type, torch.Tensor, BaseException))


def _named(obj: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of an instance of the user's, a module's children too."""
    for name, value in list(fields_of(obj).items()):
        if name == "_modules" and issubclass(type(obj), nn.Module) and issubclass(type(value), dict):
            yield from list(dict.items(value))
        else:
            yield str(name), value


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
        at = find_attribute_closing(SourceModel.of(file_of(base)), base.__name__, attribute, methods, lines)
        if at is not None:
            found.append(at._replace(place=replace(at.place, function=kind.__name__)))
    return max(found, key=lambda one: one.score, default=Closing(NOWHERE, 0.0))


# Strongly connected parts of numbered objects, what they reach, and what breaks them


Edge = tuple[int, Hashable]
"""The number of an object that is referred to, and a label, which is None where nobody needs one."""


def circular_parts(edges: Sequence[Sequence[Edge]]) -> Iterator[list[int]]:
    """The strongly connected parts with a circle in them (Tarjan's algorithm, without recursion)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    waiting: list[int] = []
    on_stack: set[int] = set()
    for root in range(len(edges)):
        if root in order:
            continue
        work = [(root, iter(edges[root]))]
        order[root] = low[root] = len(order)
        waiting.append(root)
        on_stack.add(root)
        while work:
            index, following = work[-1]
            for target, _ in following:
                if target not in order:
                    order[target] = low[target] = len(order)
                    waiting.append(target)
                    on_stack.add(target)
                    work.append((target, iter(edges[target])))
                    break
                if target in on_stack:
                    low[index] = min(low[index], order[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[index])
                if low[index] == order[index]:
                    part = [waiting.pop()]
                    while part[-1] != index:
                        part.append(waiting.pop())
                    on_stack.difference_update(part)
                    if len(part) > 1 or any(target == index for target, _ in edges[index]):
                        yield part


def reached_from(part: list[int], edges: Sequence[Sequence[Edge]], steps: int) -> set[int]:
    """A part and what its objects lead to, up to a number of objects."""
    reached, front = set(part), list(part)
    while front and len(reached) < steps:
        for target, _ in edges[front.pop()]:
            if target not in reached:
                reached.add(target)
                front.append(target)
    return reached


def opens(
    part: Iterable[int], edges: Sequence[Sequence[Edge]], labels: Collection[Hashable], inside: Collection[int]
) -> bool:
    """Whether no circle is left without some references."""
    left = {index: [to for to, label in edges[index] if label not in labels and to in inside] for index in part}
    entries = collections.Counter(target for targets in left.values() for target in targets)
    free = [index for index in left if not entries[index]]
    done = 0
    while free:
        done += 1
        for target in left[free.pop()]:
            entries[target] -= 1
            if not entries[target]:
                free.append(target)
    return done == len(left)
