"""Exceptions that somebody kept, and with them the tensors of the calls that failed."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import torch

from memguard.facts import NOWHERE, Place
from memguard.probes.naming.holders import Survey
from memguard.probes.objects import Scope, Via, attributes_of
from memguard.probes.objects.frames import read_locals
from memguard.probes.objects.sizes import storage_key

MAX_FRAMES = 64


@final
@dataclass(frozen=True, slots=True)
class HeldFrames:
    """An exception whose traceback holds tensors."""

    exception: str
    """Class of the exception."""
    how: str
    """``"last"``: the interpreter's last error; ``"stored"``: in a variable or container."""
    names: tuple[str, ...]
    """Like ``step() 'hidden'``, the heaviest first."""
    bytes: int
    place: Place
    """Where it is kept, or the innermost of the user's lines that failed."""


def find_last(*, ignore: Callable[[int], bool] = lambda key: False) -> HeldFrames | None:
    """The last error of an interactive session (``sys.last_exc``, ``sys.last_value``), if it holds tensors."""
    variables = attributes_of(sys)
    error = variables.get("last_exc") or variables.get("last_value")
    try:
        return _held(error, "last", ignore) if issubclass(type(error), BaseException) else None
    finally:
        del error


def find_stored(survey: Survey, *, ignore: Callable[[int], bool] = lambda key: False) -> tuple[HeldFrames, ...]:
    """Exceptions in the user's variables and containers that hold tensors, by the name that keeps them."""
    found: dict[Place, HeldFrames] = {}
    for link in survey.walk.links:
        if not issubclass(type(link.value), BaseException) or link.via in (Via.PART, Via.ROOT):
            continue
        held = _held(link.value, "stored", ignore)
        if held is None:
            continue
        place = survey.cause(link)
        old = found.get(place)
        total = held.bytes + (old.bytes if old is not None else 0)
        found[place] = HeldFrames(held.exception, "stored", held.names, total, place)
    return tuple(found.values())


def _held(error: Any, how: str, ignore: Callable[[int], bool]) -> HeldFrames | None:
    running = set()
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        running.add(id(frame))
        frame = frame.f_back
    trace = BaseException.__dict__["__traceback__"].__get__(error)
    names: list[tuple[int, str]] = []
    seen: set[int] = set()
    place = NOWHERE
    for _ in range(MAX_FRAMES):
        if trace is None:
            break
        if id(trace.tb_frame) not in running:
            code = trace.tb_frame.f_code
            for name, value in read_locals(trace.tb_frame).items():
                tensor: Any = value
                key = storage_key(tensor) if issubclass(type(tensor), torch.Tensor) else None
                if key is not None and key[0] not in seen and not ignore(key[0]):
                    seen.add(key[0])
                    names.append((key[1], f"{code.co_name}() {name!r}"))
                    place = Place(
                        file=code.co_filename, line=trace.tb_lineno, function=Scope.of_frame(trace.tb_frame).function
                    )
        trace = trace.tb_next
    if not names:
        return None
    names.sort(reverse=True)
    texts = tuple(text for _, text in names[:8])
    return HeldFrames(type(error).__name__, how, texts, sum(size for size, _ in names), place)
