"""Whether the code that calls a model goes on to a backward."""

from __future__ import annotations

import inspect
import os
import sys
import types
from collections.abc import Iterator
from typing import TypeAlias

import torch

from memguard.source.fate import Fate, fate_of

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OWN = os.path.dirname(os.path.dirname(__file__)) + os.sep
_MOST_FRAMES = 64
_COROUTINE = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR

Place: TypeAlias = tuple[tuple[str, int], ...]
"""The lines at which calls are under way, innermost first."""


def whither() -> tuple[Fate, Place]:
    """What becomes of the value that is being computed, in this function and in those that it returns to; and where.

    By their source alone, which is the same on every rank. BACKWARD where a statement that is being run, or one that
    follows, hands it to a backward. UNUSED only where each use of it is understood as a plain one. ESCAPES otherwise:
    it is put where others can reach it, or goes to what has no source, as an event loop or a thread's end.
    """
    place: Place = ()
    stored_at: Place = ()
    awaited = False
    for frame in _frames():
        code = frame.f_code
        place = (*place, (code.co_filename, frame.f_lineno))
        if awaited and not code.co_flags & _COROUTINE:
            break  # of a task: whoever awaits it has the value later
        awaited = bool(code.co_flags & _COROUTINE)
        fate = fate_of(code.co_filename, frame.f_lineno, code.co_name)
        if fate is Fate.BACKWARD:
            return fate, place
        if fate in (Fate.ESCAPES, Fate.ESCAPES_AND_RETURNED):
            stored_at = stored_at or place
        if fate in (Fate.ESCAPES, Fate.UNUSED):
            return (Fate.ESCAPES, stored_at) if stored_at else (fate, place)
    return Fate.ESCAPES, stored_at or place


def _frames() -> Iterator[types.FrameType]:
    """The frames of the running program, innermost first, without torch's and memguard's."""
    frame: types.FrameType | None = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return
        if not frame.f_code.co_filename.startswith((_TORCH, _OWN)):
            yield frame
        frame = frame.f_back
