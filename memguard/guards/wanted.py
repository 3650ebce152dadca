"""Whether the code that calls a model goes on to a backward from what it answers."""

from __future__ import annotations

import os
import sys
from typing import TypeAlias

import torch

from memguard.source.backward_ahead import Fate, fate_of

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OWN = os.path.dirname(os.path.dirname(__file__)) + os.sep
_MOST_FRAMES = 64


Place: TypeAlias = tuple[tuple[str, int], ...]
"""The lines at which calls are under way, innermost first."""


def whither() -> tuple[Fate, Place]:
    """What becomes of the value that is being computed, in this function and in those that it returns to; and where.

    By their source alone, which is the same on every rank. BACKWARD where a statement that is being run, or one that
    follows in the same turn of its loop, hands it to a backward; STORED where it is put where others can reach it.
    """
    frame, place = sys._getframe(1), []
    for _ in range(_MOST_FRAMES):
        if frame.f_back is None:
            break
        frame = frame.f_back
        code = frame.f_code
        if code.co_filename.startswith((_TORCH, _OWN)):
            continue
        place.append((code.co_filename, frame.f_lineno))
        fate = fate_of(code.co_filename, frame.f_lineno)
        if fate in (Fate.BACKWARD, Fate.STORED):
            return fate, tuple(place)
        # Of what an expression within a statement has computed (<lambda>, <genexpr>), the statement around it tells.
        if fate is Fate.NEITHER and (not code.co_name.startswith("<") or code.co_name == "<module>"):
            break
    return Fate.NEITHER, tuple(place)
