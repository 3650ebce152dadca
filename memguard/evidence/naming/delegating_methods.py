"""Methods that only pass on what their parts return: the line that matters is the caller's."""

from __future__ import annotations

import sys
from types import FrameType

from torch import nn

from memguard.heap.frames import is_user_frame, read_locals, user_frames
from memguard.source.fate import answers

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
