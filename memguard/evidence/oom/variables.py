"""Variables that the running code can reach after an out-of-memory error, and which of them holds a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, final

import torch
from torch import nn

from memguard.evidence.oom.stack import Stack
from memguard.heap.attributes import attributes_of
from memguard.heap.children import MODULE_INTERNALS
from memguard.heap.containers import all_of
from memguard.heap.frames import is_user_frame, read_locals
from memguard.heap.sites import place_of
from memguard.records.facts import NOWHERE, Place
from memguard.source.model import SourceModel, Sources
from memguard.source.scopes import Scope
from memguard.source.stores import feedback_of, filled_at

MOST_ITEMS = 4096
MOST_ATTRIBUTES = 256


@final
@dataclass(frozen=True, slots=True)
class Variable:
    """A local, a global or an attribute of an object that one of them holds. Lives no longer than the look."""

    name: str
    value: object
    place: Place
    """The frame's current line."""
    code: CodeType | None = None
    """The function whose local it is."""
    reset: str | None = None
    """The object whose attribute it is, where that has a method ``reset``."""


def variables_of(stack: Stack) -> Iterator[Variable]:
    """What the user's code can reach: locals, innermost frame first, globals of its modules, attributes of its objects.

    Args:
        stack: Where the program stood.
    """
    modules: set[int] = set()
    for frame in stack.frames:
        if not is_user_frame(frame):
            continue
        place = place_of(frame)
        for name, value in read_locals(frame).items():
            yield Variable(name, value, place, frame.f_code)
            yield from _attributes(name, value, place)
        if id(frame.f_globals) not in modules and frame.f_locals is not frame.f_globals:
            modules.add(id(frame.f_globals))
            place = Place(file=frame.f_code.co_filename)
            for name, value in list(frame.f_globals.items()):
                if not name.startswith("__"):
                    yield Variable(name, value, place)
                    yield from _attributes(name, value, place)


def holder_of(thing: object, stack: Stack) -> Place:
    """The variable that holds an object, itself, in a container, or in an object in a container; else nowhere."""
    for variable in variables_of(stack):
        if variable.value is thing or any(
            item is thing or any(part is thing for part in _parts(item)) for item in items_of(variable.value)
        ):
            place = variable.place
            return Place(file=place.file, line=place.line, function=place.function, holder=variable.name)
    return NOWHERE


def items_of(value: object) -> list[Any]:
    """What a container of the plain kinds holds; nothing of other objects."""
    return all_of(value)[:MOST_ITEMS]


def _parts(item: object) -> list[Any]:
    if issubclass(type(item), (torch.Tensor, nn.Module, type)):
        return []
    return [*items_of(item), *list(attributes_of(item).values())[:MOST_ATTRIBUTES]]


@final
class Feedback:
    """Which local variables take of their last value into the next (``x, h = f(x, h)``, ``total += loss``), or fill.

    Args:
        passing: Code whose variables last no longer than one call of a model.
    """

    def __init__(self, passing: set[CodeType]) -> None:
        self._passing = passing
        self._sources = Sources()

    def of(self, variable: Variable) -> tuple[str | None, int | None]:
        """``"carried"`` or ``"added"`` with the statement's line; None where it is neither.

        Args:
            variable: A local variable.
        """
        if variable.code in self._passing:
            return None, None
        _, scope = self._scope_of(variable)
        return feedback_of(scope, variable.name) if scope is not None else (None, None)

    def filled_at(self, variable: Variable) -> int | None:
        """The line at which the loop where its function stands adds to a local container; None without one.

        Args:
            variable: A local variable.
        """
        (model, scope), line = self._scope_of(variable), variable.place.line
        if model is None or scope is None or line is None:
            return None
        return filled_at(model, scope, variable.name, line)

    def _scope_of(self, variable: Variable) -> tuple[SourceModel | None, Scope | None]:
        code = variable.code
        model = self._sources.get(code.co_filename) if code is not None else None
        return model, model.scope_of(code.co_firstlineno, code.co_name) if model is not None and code else None


def _attributes(name: str, value: object, place: Place) -> Iterator[Variable]:
    """Attributes of an instance of a class of the user's (or a module): ``self.losses``, ``model.history``."""
    kind = type(value)
    library = str(type.__dict__["__module__"].__get__(kind)).partition(".")[0]
    if library in ("builtins", "torch", "types", "memguard", "lightning", "pytorch_lightning"):
        return
    if not issubclass(kind, (type, torch.Tensor)):
        owner = name if name != "self" else kind.__name__
        reset = owner if callable(getattr(kind, "reset", None)) else None
        for attribute, inner in list(attributes_of(value).items())[:MOST_ATTRIBUTES]:
            if attribute not in MODULE_INTERNALS:
                yield Variable(f"{owner}.{attribute}", inner, place, reset=reset)
