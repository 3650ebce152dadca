"""Exceptions that somebody kept, and with them the tensors of the calls that failed."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, final

import torch

from memguard.facts import NOWHERE, Place
from memguard.probes.naming.holders import Survey
from memguard.probes.objects import Scope, Via, attributes_of
from memguard.probes.objects.frames import read_locals
from memguard.probes.objects.sizes import held_bytes, storage_key

MAX_FRAMES = 64
_FAILURES: Final = (BaseException, types.TracebackType)


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
        return _held(error, "last", ignore, set()) if issubclass(type(error), BaseException) else None
    finally:
        del error


def find_stored(survey: Survey, *, ignore: Callable[[int], bool] = lambda key: False) -> tuple[HeldFrames, ...]:
    """Exceptions in the user's variables and containers that hold tensors, by the name that keeps them.

    What somebody else holds as well, such as the data that a failed function was given, is none of theirs.
    """
    found: dict[Place, HeldFrames] = {}
    counted = _without_failure(survey)
    for link in survey.walk.links:
        if not issubclass(type(link.value), BaseException) or link.via in (Via.PART, Via.ROOT):
            continue
        held = _held(link.value, "stored", ignore, counted)
        if held is None:
            continue
        place = survey.cause(link)
        old = found.get(place)
        total = held.bytes + (old.bytes if old is not None else 0)
        found[place] = HeldFrames(held.exception, "stored", held.names, total, place)
    return tuple(found.values())


def _without_failure(survey: Survey) -> set[int]:
    """Storages to which some way leads that goes through no exception."""
    found = set()
    for leaf in survey.tensors:
        key = storage_key(leaf.value)
        if key is None or key[0] in found:
            continue
        if not any(issubclass(type(link.value), _FAILURES) for link in leaf.trail()):
            found.add(key[0])
    return found


def _held(error: Any, how: str, ignore: Callable[[int], bool], seen: set[int]) -> HeldFrames | None:
    """What an exception's frames hold, graphs included, of storages that were not seen; they are from then on."""
    running = set()
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        running.add(id(frame))
        frame = frame.f_back
    trace = BaseException.__dict__["__traceback__"].__get__(error)
    names: list[tuple[int, str]] = []
    place = NOWHERE
    for _ in range(MAX_FRAMES):
        if trace is None:
            break
        if id(trace.tb_frame) not in running:
            code = trace.tb_frame.f_code
            for name, value in read_locals(trace.tb_frame).items():
                tensor: Any = value
                held = held_bytes(tensor, {}) if issubclass(type(tensor), torch.Tensor) else {}
                held = {key: size for key, size in held.items() if key not in seen and not ignore(key)}
                if held:
                    seen.update(held)
                    names.append((sum(held.values()), f"{code.co_name}() {name!r}"))
                    place = Place(
                        file=code.co_filename, line=trace.tb_lineno, function=Scope.of_frame(trace.tb_frame).function
                    )
        trace = trace.tb_next
    if not names:
        return None
    names.sort(reverse=True)
    texts = tuple(text for _, text in names[:8])
    return HeldFrames(type(error).__name__, how, texts, sum(size for size, _ in names), place)
