"""Variables that the running code can reach after an out-of-memory error, and which of them holds a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, final

import torch
from torch import nn

from memguard.evidence.naming.names import files_of_owner, sought_of, user_files
from memguard.evidence.oom.stack import Stack
from memguard.heap.attributes import attributes_of, is_user_class
from memguard.heap.children import MODULE_INTERNALS, Scope, Via
from memguard.heap.containers import all_of, tensors_in
from memguard.heap.frames import is_user_frame, place_of, read_locals
from memguard.heap.tensors import is_tensor
from memguard.heap.walk import Link
from memguard.records.facts import NOWHERE, Place
from memguard.source.model import SourceModel, Sources
from memguard.source.name_query import SearchContext, Statement
from memguard.source.scopes import Scope as SourceScope
from memguard.source.search import find_statement
from memguard.source.stores import feedback_of, filled_at

MOST_ITEMS = 4096
MOST_DEPTH = 4
"""Containers between a variable and its tensors."""
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
    link: Link | None = None
    """How its owner holds it, a scope or an object."""


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
        scope = Link(Scope.of_frame(frame), Via.ROOT)
        for name, value in read_locals(frame).items():
            local = Link(value, Via.LOCAL, name, scope)
            yield Variable(name, value, place, frame.f_code, link=local)
            yield from _attributes(local, place)
        if id(frame.f_globals) not in modules and frame.f_locals is not frame.f_globals:
            modules.add(id(frame.f_globals))
            place = Place(file=frame.f_code.co_filename)
            scope = Link(Scope(dict(frame.f_globals), frame.f_code.co_filename), Via.ROOT)
            for name, value in list(frame.f_globals.items()):
                if not name.startswith("__"):
                    shared = Link(value, Via.GLOBAL, name, scope)
                    yield Variable(name, value, place, link=shared)
                    yield from _attributes(shared, place)


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


def holds_tensors(item: object) -> bool:
    """Whether something is a tensor, or has some in itself or in its attributes."""
    inside = attributes_of(item) if is_user_class(type(item)) else item
    return next(iter(tensors_in(inside, 2)), None) is not None


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

    def _scope_of(self, variable: Variable) -> tuple[SourceModel | None, SourceScope | None]:
        code = variable.code
        model = self._sources.get(code.co_filename) if code is not None else None
        return model, model.scope_of(code.co_firstlineno, code.co_name) if model is not None and code else None


def filling_statement(variable: Variable, sources: Sources) -> Statement | None:
    """The statement that adds tensors to a variable or an attribute, wherever in the user's source it is.

    Args:
        variable: What holds them, one of `variables_of`.
        sources: The parsed files.
    """
    name = variable.link
    if name is None:
        return None
    trail, link = [name], name
    while not is_tensor(link.value) and len(trail) <= MOST_DEPTH:
        items = items_of(link.value) or list(attributes_of(link.value).values())
        inner = next((item for item in reversed(items) if holds_tensors(item)), None)
        if inner is None:
            return None
        link = Link(inner, Via.ITEM, None, link)
        trail.append(link)
    query = sought_of(name, trail)
    if query is None:
        return None
    files = [*files_of_owner(name), *([variable.place.file] if variable.place.file else []), *user_files()]
    found = find_statement(query, dict.fromkeys(files), sources, SearchContext(graph=False))
    return found if found is not None and found.grows and found.certain else None


def _attributes(owner_link: Link, place: Place) -> Iterator[Variable]:
    """Attributes of an instance of a class of the user's (or a module): ``self.losses``, ``model.history``."""
    name, value = str(owner_link.key), owner_link.value
    kind = type(value)
    library = str(type.__dict__["__module__"].__get__(kind)).partition(".")[0]
    if library in ("builtins", "torch", "types", "memguard", "lightning", "pytorch_lightning"):
        return
    if not issubclass(kind, (type, torch.Tensor)):
        owner = name if name != "self" else kind.__name__
        reset = owner if callable(getattr(kind, "reset", None)) else None
        for attribute, inner in list(attributes_of(value).items())[:MOST_ATTRIBUTES]:
            if attribute not in MODULE_INTERNALS:
                link = Link(inner, Via.ATTRIBUTE, attribute, owner_link)
                yield Variable(f"{owner}.{attribute}", inner, place, reset=reset, link=link)
