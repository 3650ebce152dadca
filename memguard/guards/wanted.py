"""Whether the code that calls a model goes on to a backward from what it answers."""

from __future__ import annotations

import os
import sys

import torch

from memguard.source.backward_ahead import Fate, fate_of

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OWN = os.path.dirname(os.path.dirname(__file__)) + os.sep
_MOST_FRAMES = 64


def leads_to_backward() -> bool:
    """Whether a statement that is being run, here or in a function that it returns to, hands its value to a backward.

    By its source alone, which is the same on every rank. What goes through attributes, lists or callbacks is not seen.
    """
    frame = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame.f_back is None:
            return False
        frame = frame.f_back
        code = frame.f_code
        if code.co_filename.startswith((_TORCH, _OWN)):
            continue
        fate = fate_of(code.co_filename, frame.f_lineno)
        if fate is Fate.BACKWARD:
            return True
        # Of what an expression within a statement has computed (<lambda>, <genexpr>), the statement around it tells.
        if fate is Fate.NEITHER and (not code.co_name.startswith("<") or code.co_name == "<module>"):
            return False
    return False
