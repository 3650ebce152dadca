"""How many elements a bounded container may hold: its maxlen, or the number its length is compared with.

``if len(self.items) > self.capacity: self.items.pop(0)`` bounds a buffer; whether the bound helps is a matter of its
size. Read from the syntax tree and from plain attributes; no code of the user's runs.
"""

from __future__ import annotations

import collections

from memguard.heap.attributes import attributes_of
from memguard.heap.walk import Link
from memguard.source.bounds import Limit, constant_of, length_limits
from memguard.source.expressions import own_attribute, symbol_of
from memguard.source.model import SourceModel

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
    if model is None:
        return None
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
    while owner is not None and attribute not in attributes_of(owner.value):
        owner = owner.parent
    value = attributes_of(owner.value)[attribute] if owner is not None else None
    return value if type(value) is int else None
