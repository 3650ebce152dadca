"""Cycles of dicts, lists and tuples: which key to change, and the user's statement that fills it.

No object of such a circle tells who made it, as a class does: the keys that the circle runs through are looked for in
the user's files. A circle of which no statement is found there is nobody's.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Sequence
from typing import Any

import torch

from memguard.evidence.cycles.strongly_connected import Edge, opens
from memguard.evidence.naming.names import user_files
from memguard.heap.attributes import attributes_of, is_user_class
from memguard.records.facts import Place
from memguard.source.circles import KeyStatement, find_key_statements, find_self_filling
from memguard.source.model import Sources

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
        found = find_self_filling(files, sources)
        return (found.place, f"{found.place.holder} <- list") if found is not None else None
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
