"""The statement that closes a circle of references, by the syntax tree of the class that it is in."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass
from typing import final

from memguard.facts import NOWHERE, Place
from memguard.heap.attributes import attributes_of, is_user_class, mro_of, namespace_of
from memguard.source.circles import find_attribute_closing
from memguard.source.model import SourceModel


@final
@dataclass(frozen=True, slots=True)
class Closing:
    """Where an attribute takes what leads back to its object."""

    place: Place
    score: float
    """0.0 where no statement was found that stores anything."""
    made: frozenset[str] = frozenset()
    """Names of what is called with the object itself: ``Part`` of ``self.part = Part(self)``."""
    is_given: bool = False
    """Whether it is what the object was given when it was made: ``self.owner = owner`` in its ``__init__``."""


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
        if model is not None and at is not None:
            found.append(Closing(model.place(at.line, kind.__name__), at.score, at.made, at.is_given))
    return max(found, key=lambda one: one.score, default=Closing(NOWHERE, 0.0))


def _model_of(kind: type) -> SourceModel | None:
    module = sys.modules.get(str(namespace_of(kind).get("__module__")))
    file = attributes_of(module).get("__file__") if module is not None else None
    return SourceModel.of(file) if type(file) is str else None
