"""Names on the way to a tensor, as a reader of the program writes them, and how much what has one may hold."""

from __future__ import annotations

import collections
import itertools
import re
import types
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from memguard.heap.attributes import fields_of, is_user_class, mro_of, namespace_of
from memguard.heap.children import LRU_CACHE, Scope, Via, function_behind
from memguard.heap.containers import container_of, length_of
from memguard.heap.frames import is_user_file
from memguard.heap.roots import user_modules
from memguard.heap.walk import Link
from memguard.records.facts import Place
from memguard.source.bounds import Limit, constant_of, length_limits
from memguard.source.expressions import own_attribute, symbol_of
from memguard.source.model import SourceModel
from memguard.source.name_query import NameQuery

MAX_PARTS = 16
"""Of a tuple, whose plain parts tell which statement made it."""
_PLAIN = (bool, int, str, type(None))
NAMES = (Via.LOCAL, Via.GLOBAL, Via.CLOSURE, Via.DEFAULT, Via.ATTRIBUTE)
"""Ways of holding that go by a name."""
MIN_LENGTH = 3
"""Elements from which on a container may be one that grows."""
MIN_ALIKE = 8
"""Names in one object or scope that differ in a number only: a statement makes them up."""
NUMBER = re.compile(r"\d+")
MIN_PARTS = 8
"""The same for a dict of objects of the user's, by name."""


def innermost(leaf: Link) -> Link:
    """The last link of a trail that has a name."""
    link = leaf
    while link.via not in NAMES and link.parent is not None:
        link = link.parent
    return link


def growing(leaf: Link) -> Link:
    """The longest container on the way to a tensor, if it is long enough to be what grows; else the tensor."""
    best, longest = leaf, MIN_LENGTH - 1
    for link, below in itertools.pairwise(leaf.trail()):
        length = length_of(link.value)
        if length > longest and link.via is not Via.ROOT and not _is_table_of_parts(link, below, length):
            best, longest = link, length
    return best


def _is_table_of_parts(link: Link, part: Link, length: int) -> bool:
    """Whether a container is a short dict of objects, like ``{"loss": Meter(), "acc": Meter()}``: they grow, not it."""
    is_dict = container_of(type(link.value)) == "dict"
    return is_dict and length < MIN_PARTS and type(part.key) is str and is_user_class(type(part.value))


def text_of(link: Link) -> str:
    """``history``, ``LitModel.outputs``, ``state.total``: a name as a reader of the program would write it."""
    if link.via is not Via.ATTRIBUTE or link.parent is None:
        return str(link.key) if link.key is not None else _class_name(type(link.value))
    owner = link.parent.value
    if type(owner) is types.FunctionType:
        return f"{owner.__name__}.{link.key}"
    cls = class_of(owner)
    outer = next((item for item in reversed(link.parent.trail()) if item.via in NAMES), None)
    if is_user_class(cls) or outer is None:
        return f"{_class_name(cls)}.{link.key}"
    return f"{text_of(outer)}.{link.key}"


def place_of(link: Link) -> Place:
    """Where a name lives, for want of a statement."""
    owner = link.parent.value if link.parent is not None else None
    if type(owner) is Scope:
        return Place(file=owner.file, line=owner.line, function=owner.function, holder=text_of(link))
    if (function := function_behind(owner)) is not None:
        code = function.__code__
        return Place(file=code.co_filename, line=code.co_firstlineno, function=code.co_name, holder=text_of(link))
    return Place(holder=text_of(link))


def sought_of(name: Link, rest: Sequence[Link]) -> NameQuery | None:
    """What to look for in the syntax tree."""
    parent = name.parent
    if parent is None or type(name.key) is not str:
        return None
    links = [link for link in rest if link.via is not Via.PART or link is rest[0]]
    lengths = [length_of(link.value) for link in links[:-1]] or [0]
    kinds = (*(_kind_of(link.value) for link in links[:-1]), "tensor")
    keys = tuple(link.key if link.via is Via.ITEM else None for link in links[1:])
    grows = lengths.index(max(lengths))
    own = tuple(_class_name(cls) for cls in mro_of(type(links[0].value)) if is_user_class(cls))
    own = own if kinds[0] not in ("object", "tensor") else ()
    element = links[-2].value if len(links) > 2 and grows < len(links) - 2 else None
    parts = element if type(element) is tuple and len(element) <= MAX_PARTS else ()
    beside = tuple((at, part) for at, part in enumerate(parts) if any(type(part) is kind for kind in _PLAIN))
    query = NameQuery(name.key, own_classes=own, kinds=kinds, keys=keys, grows=grows, beside=beside)
    owner = parent.value
    if name.via is Via.ATTRIBUTE:
        base = next((str(link.key) for link in reversed(parent.trail()) if link.via in NAMES), None)
        classes: tuple[str, ...] = ()
        if type(owner) is types.FunctionType:
            base = owner.__name__
        else:
            classes = tuple(_class_name(cls) for cls in _classes_of(owner) if cls is not object and cls is not type)
        return replace(query, attribute=True, classes=classes, base=base)
    if type(owner) is Scope:
        file, first_line, function = owner.file, owner.first_line, owner.function
    elif (behind := function_behind(owner)) is not None:
        code = behind.__code__
        file, first_line, function = code.co_filename, code.co_firstlineno, code.co_name
    else:
        return None
    return replace(query, file=file, first_line=first_line, function=function)


def _kind_of(value: object) -> str:
    """A container, a cache, which calls fill of themselves, or any object."""
    return "cache" if type(value) is LRU_CACHE else container_of(type(value)) or "object"


def class_of(owner: Any) -> type:
    """The class whose attribute an object's attribute is: its own, or itself if it is a class."""
    cls: type = owner if issubclass(type(owner), type) else type(owner)
    return cls


def _classes_of(owner: Any) -> tuple[type, ...]:
    """The classes whose methods see an object's attributes as their own: of a class its metaclass's, too."""
    cls = class_of(owner)
    return (*mro_of(cls), *mro_of(type(cls))) if cls is owner else mro_of(cls)


def _class_name(cls: type) -> str:
    return str(type.__dict__["__name__"].__get__(cls))


def files_of_owner(name: Link) -> list[str]:
    """Files of the user's classes that own an attribute."""
    files = []
    for cls in _classes_of(name.parent.value) if name.parent is not None else ():
        if not is_user_class(cls):
            continue
        for function in list(namespace_of(cls).values()):
            if type(function) is types.FunctionType and is_user_file(function.__code__.co_filename):
                files.append(function.__code__.co_filename)
                break
    return files


def user_files() -> list[str]:
    """Files of all the user's modules."""
    return [file for file, _ in user_modules() if file.endswith(".py")]


def cells_of(frames: Iterable[types.FrameType]) -> tuple[frozenset[str], ...]:
    """Files that share their globals, like the cells of a notebook: of some frames and of the functions beside."""
    files: dict[int, set[str]] = {}
    for frame in frames:
        variables = frame.f_globals
        if id(variables) in files:
            files[id(variables)].add(frame.f_code.co_filename)
            continue
        found = files[id(variables)] = {frame.f_code.co_filename}
        for value in list(variables.values()):
            parts = [value]
            if issubclass(type(value), type) and is_user_class(value):
                parts = list(namespace_of(value).values())
            found.update(
                part.__code__.co_filename
                for part in parts
                if type(part) is types.FunctionType and part.__globals__ is variables
            )
    return tuple(frozenset(file for file in found if is_user_file(file)) for found in files.values() if len(found) > 1)


_MOST = 10**12
"""A larger number means: without a limit."""


OUTGROWN = 2
"""So many times its supposed bound, and a container has none."""


def outgrew(length: int, capacity: int | None) -> bool:
    """Whether a container is longer than all that its length is compared with: ``if len(memory) < batch_size:``."""
    return capacity is not None and length > OUTGROWN * capacity


def capacity_of(container: Link | None, file: str | None, name: str | None) -> int | None:
    """How many elements a container holds when it is full; None where that is not known for certain.

    Args:
        container: The way to it, whose last but one link may be the object that has it as an attribute.
        file: Where it is filled.
        name: What it is called there, like ``items`` or ``Memory.items``.
    """
    if container is not None and issubclass(type(container.value), collections.deque):
        maxlen = collections.deque.maxlen.__get__(container.value)
        return maxlen if maxlen is None or maxlen < _MOST else None
    if file is None or not name:
        return None
    model = SourceModel.of(file)
    numbers = [_number(limit, container, model) for limit in length_limits(model, symbol_of(name)[0])]
    known = [number for number in numbers if number is not None and 0 < number < _MOST]
    return max(known) if known and len(known) == len(numbers) else None


def _number(limit: Limit, container: Link | None, model: SourceModel) -> int | None:
    """A limit's value: a number in the source, a module's constant, or an attribute of the object that has the list."""
    attribute = own_attribute(limit)
    if attribute is None:
        number = constant_of(model, limit)
        return int(number) if number is not None and abs(number) < _MOST else None
    owner = container.parent if container is not None else None
    while owner is not None and attribute not in fields_of(owner.value):
        owner = owner.parent
    value = fields_of(owner.value)[attribute] if owner is not None else None
    return value if type(value) is int else None
