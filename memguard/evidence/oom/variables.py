"""Where the program was when memory ran out (frames, line, phase, model), and the variables that it can reach."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, final

import torch
from torch import nn

from memguard.evidence.naming.names import files_of_owner, sought_of, user_files
from memguard.heap.attributes import attributes_of, is_tensor, is_user_class
from memguard.heap.children import MODULE_INTERNALS, Scope, Via
from memguard.heap.containers import all_of, tensors_in
from memguard.heap.frames import frames_from, is_user_frame, place_of, read_locals
from memguard.heap.walk import Link
from memguard.records.facts import NOWHERE, Place
from memguard.source.fate import Fate, fate_of
from memguard.source.model import SourceModel, Sources
from memguard.source.name_query import SearchContext, Statement
from memguard.source.scopes import Scope as SourceScope
from memguard.source.search import find_statement
from memguard.source.stores import feedback_of, filled_at

_CALLS = ("_wrapped_call_impl", "_call_impl")
_MOST = 400
_TORCH = str(Path(torch.__file__).parent)


@dataclass(slots=True)
class Stack:
    """The frames of the failing code, innermost first; it is let go of as soon as the scene is drawn."""

    frames: list[FrameType]
    outside: int = 0
    """The first frame that is not inside a module's forward."""
    running: set[int] = field(default_factory=set)
    """Ids of all frames that run, or belong to the failing error."""
    site: Place = NOWHERE
    call_site: Place = NOWHERE
    """The user's line that called the outermost module."""
    inputs: tuple[tuple[int, ...], ...] = ()
    """Shapes of the tensors that this module was called with."""
    phase: str | None = None
    model: nn.Module | None = None
    """The outermost module whose forward failed."""
    optimizer: torch.optim.Optimizer | None = None
    """The one whose step failed."""
    losses: list[torch.Tensor] = field(default_factory=list)
    """What the failing backward began from."""
    handled: set[int] = field(default_factory=set)
    """Ids of the errors inside whose handlers the failing code ran."""


def stack_of(error: BaseException | None) -> Stack:
    """The frames of an error's traceback, or where there is no error yet, of the running code.

    Args:
        error: The error; None while the allocator is still asking.
    """
    stack = Stack([])
    # No local variable may hold a frame: this function's own is among them, and a cycle would keep all their tensors.
    if error is not None:
        stack.frames += _failed(error.__traceback__)
    else:
        stack.frames += frames_from(sys._getframe(1))
        if threading.current_thread() is not threading.main_thread():
            stack.frames += frames_from(sys._current_frames().get(threading.main_thread().ident or 0))
    stack.running = {id(each) for each in stack.frames}
    stack.running.update(id(each) for top in sys._current_frames().values() for each in frames_from(top))
    del stack.frames[_MOST:]
    context = error.__context__ if error is not None else sys.exc_info()[1]
    while context is not None and id(context) not in stack.handled:
        stack.handled.add(id(context))
        context = context.__context__
    _read(stack)
    return stack


def _read(stack: Stack) -> None:
    wants_caller = False
    for index, frame in enumerate(stack.frames):
        code = frame.f_code
        if (stack.site is NOWHERE or wants_caller) and is_user_frame(frame):
            place = place_of(frame)
            stack.site = place if stack.site is NOWHERE else stack.site
            stack.call_site, wants_caller = place if wants_caller else stack.call_site, False
        file, name = code.co_filename.replace("\\", "/"), code.co_name
        if name in _CALLS and "/torch/nn/modules/module.py" in file:
            module = read_locals(frame).get("self")
            if issubclass(type(module), nn.Module):
                stack.model = module  # type: ignore[assignment]
                given = [value for name in ("args", "kwargs") for value in tensors_in(read_locals(frame).get(name), 2)]
                stack.inputs = tuple(tuple(tensor.shape) for tensor in given)
                wants_caller, stack.outside = True, index + 1
                stack.phase = stack.phase or "forward"
        elif name == "step" and stack.optimizer is None:  # of torch.optim, or of a class of the user's
            optimizer = read_locals(frame).get("self")
            if issubclass(type(optimizer), torch.optim.Optimizer):
                stack.optimizer = optimizer  # type: ignore[assignment]
                stack.phase = stack.phase or "optimizer step"
        elif name == "backward" and file.endswith("/torch/autograd/__init__.py"):
            stack.phase = stack.phase or "backward"
            tensors: Any = read_locals(frame).get("tensors")
            for tensor in tensors if issubclass(type(tensors), (tuple, list)) else (tensors,):
                if is_tensor(tensor):
                    stack.losses.append(tensor)


def is_unused(stack: Stack) -> bool | None:
    """Whether no backward will use what the failing forward computes, by the source of the functions that wait for it.

    Args:
        stack: Where the program stood; of running code, not of an error that has left its functions.
    """
    if stack.phase != "forward":
        return None
    for frame in stack.frames[stack.outside :]:
        if not is_user_frame(frame):
            if frame.f_code.co_filename.startswith(_TORCH):  # a decorator's
                continue
            return None  # a library's loop: what it does with the value, its own code says
        fate = fate_of(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        if fate is not Fate.RETURNED:
            return {Fate.BACKWARD: False, Fate.UNUSED: True}.get(fate)
    return None


def _failed(trace: TracebackType | None) -> Iterator[FrameType]:
    found: list[FrameType] = []
    while trace is not None and len(found) < 10 * _MOST:
        found.append(trace.tb_frame)
        trace = trace.tb_next
    yield from reversed(found)


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
    """What the user's code can reach: locals, innermost frame first, globals, attributes of its objects."""
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
        """``"carried"`` or ``"added"`` with the statement's line; None where it is neither."""
        if variable.code in self._passing:
            return None, None
        _, scope = self._scope_of(variable)
        return feedback_of(scope, variable.name) if scope is not None else (None, None)

    def filled_at(self, variable: Variable) -> int | None:
        """The line at which the loop where its function stands adds to a local container; None without one."""
        (model, scope), line = self._scope_of(variable), variable.place.line
        if scope is None or line is None:
            return None
        return filled_at(model, scope, variable.name, line)

    def _scope_of(self, variable: Variable) -> tuple[SourceModel, SourceScope | None]:
        code = variable.code
        model = self._sources.get(code.co_filename if code is not None else None)
        return model, model.scope_of(code.co_firstlineno, code.co_name) if code is not None else None


def filling_statement(variable: Variable, sources: Sources) -> Statement | None:
    """The statement that adds tensors to a variable or an attribute, wherever in the user's source it is."""
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
