"""What the code that runs says of itself: whether it evaluates, and whether it can come to a backward."""

from __future__ import annotations

import os
import sys
from types import FrameType

import torch

from memguard.evidence.naming.names import user_files
from memguard.heap.frames import is_user_frame, starts_program, user_frames
from memguard.heap.roots import instances_of
from memguard.source import trainings

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OWN = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep


def names_evaluation() -> bool:
    """Whether any of the user's functions that run, or a loop in one, says by its name that it evaluates."""
    frames = user_frames(sys._getframe(1))
    return any(
        trainings.is_evaluation(f.f_code.co_filename, f.f_code.co_firstlineno, f.f_code.co_name, f.f_lineno)
        for f in frames
    )


def may_train() -> bool:
    """Whether the running code can come to a backward: by its own names, or a library's where there is an optimizer."""
    frames = list(user_frames(sys._getframe(1)))
    files = {*user_files(), *(frame.f_code.co_filename for frame in frames)}
    return trainings.may_train([(frame.f_code, frame.f_lineno) for frame in frames], files) or (
        _is_called_by_library(sys._getframe(1)) and bool(instances_of(torch.optim.Optimizer))
    )


def _is_called_by_library(frame: FrameType | None) -> bool:
    """Whether a function that is neither the user's nor torch's or ours is on the stack, between the user's own."""
    seen = False
    while frame is not None and not starts_program(frame):
        if is_user_frame(frame):
            if seen:
                return True
        elif not frame.f_code.co_filename.startswith((_TORCH, _OWN, "<")):
            seen = True
        frame = frame.f_back
    return False
