"""Which line of a call stack to change: past methods that only pass on an answer, and lines that models share."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from types import CodeType, FrameType
from typing import Any, final

from torch import nn

from memguard.heap.attributes import fields_of
from memguard.heap.frames import is_user_frame, place_of, read_locals, user_frames
from memguard.heap.roots import submodules_of
from memguard.records.facts import Place
from memguard.source.fate import answers

MAX_DEPTH = 16
"""Frames of the user's that are looked at."""


@final
@dataclass(frozen=True, slots=True)
class Level:
    """One of the user's functions on the way to a call."""

    place: Place
    owner: weakref.ref[nn.Module] | None
    """The module whose method it is, if the one that is called is a part of that."""
    code: CodeType

    @property
    def function(self) -> tuple[str | None, str | None]:
        """File and name of the function, to compare."""
        return self.place.file, self.place.function


Stack = tuple[Level, ...]
"""Innermost first."""


def stack_of(module: nn.Module) -> Stack:
    """The way to the call of a module that ends just now."""
    return tuple(
        Level(replace(place_of(found), holder=name_in(found, module)), _owner(found, module), found.f_code)
        for found in itertools.islice(user_frames(sys._getframe(1)), MAX_DEPTH)
    )


def line_to_change(stack: Stack, others: Iterable[Stack], optimized: Collection[int]) -> Place | None:
    """The line of a call whose gradients nobody wants.

    That is the innermost one, unless other models' calls, whose gradients are wanted, go through it as well (a helper
    that both share), or it lies in a method of the unwanted model itself (``vae.encode``): then its caller's.

    Args:
        stack: The way to the call.
        others: The ways to calls of models that are trained.
        optimized: Ids of the modules of which an optimizer holds a weight.
    """
    if not stack:
        return None
    shared = {level.place.where for other in others for level in other}
    index = 0
    while index + 1 < len(stack):
        level, above = stack[index], stack[index + 1]
        owner = level.owner() if level.owner is not None else None
        inside = owner is not None and not any(id(part) in optimized for part in submodules_of(owner, set()))
        if level.place.where not in shared and not (inside and above.place.where not in shared):
            return level.place
        index += 1
    return stack[0].place if stack[-1].place.where in shared else stack[-1].place


def _owner(frame: FrameType, module: nn.Module) -> weakref.ref[nn.Module] | None:
    code = frame.f_code
    if not code.co_argcount or code.co_varnames[0] != "self":
        return None
    owner: Any = read_locals(frame).get("self")
    if not issubclass(type(owner), nn.Module) or not any(part is module for part in submodules_of(owner, set())):
        return None
    return weakref.ref(owner)


def name_in(frame: FrameType, module: nn.Module) -> str | None:
    """What a frame calls a module: a variable, or an attribute of one; a loop's ``self`` is no name for it."""
    variables = read_locals(frame)
    seen = {name: frame.f_globals[name] for name in frame.f_code.co_names if name in frame.f_globals}
    for name, value in [*variables.items(), *seen.items()]:
        if value is module and name != "self":
            return name
    for name, value in variables.items():
        attributes = fields_of(value)
        parts = attributes.get("_modules")
        for held in (attributes, parts if isinstance(parts, dict) else {}):  # an OrderedDict before torch 2.5
            for attribute, part in list(dict.items(held)):
                if part is module:
                    return f"{name}.{attribute}"
    return None


_WITHIN = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>"})
"""Frames that Python before 3.12 makes for a part of a function."""


def asking_frame(frame: FrameType | None = None, *, strict: bool) -> FrameType | None:
    """The user's innermost frame that is no method of a model which only answers; None without the user's code.

    ``return self.decoder(z)`` in a method of the model is a part of it: the line is where that method is called.

    Args:
        frame: Where to begin; the caller's frame if not given.
        strict: Whether to pass over methods alone that return what the call gives as it is, else all whose answer has
            its graph.
    """
    found = next(user_frames(sys._getframe(1) if frame is None else frame), None)
    while found is not None:
        above = _above_method(found, strict=strict)
        if above is None:
            break
        found = above
    return found


def judging_frame(frame: FrameType) -> FrameType:
    """The user's innermost frame, from one on, that is no method of a model at all: what evaluates."""
    while True:
        above = frame.f_back if frame.f_code.co_name in _WITHIN else _above_method(frame, strict=None)
        if above is None:
            return frame
        frame = above


def _above_method(frame: FrameType, *, strict: bool | None) -> FrameType | None:
    """The user's frame that calls this one, if this is a method of a model that answers; None: that does anything."""
    code, above = frame.f_code, frame.f_back
    if not code.co_argcount or code.co_varnames[0] != "self" or above is None or not is_user_frame(above):
        return None
    if strict is not None and not answers(code, frame.f_lineno, strict=strict):
        return None
    return above if issubclass(type(read_locals(frame).get("self")), nn.Module) else None
