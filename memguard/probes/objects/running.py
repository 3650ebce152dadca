"""What runs or has run holds: frames, generators, context variables, exceptions with their tracebacks."""

from __future__ import annotations

import contextvars
import types
from collections.abc import Iterator
from typing import Any

from memguard.probes.objects.elements import FULL
from memguard.probes.objects.frames import is_user_frame
from memguard.probes.objects.held import Held, Scope, Via
from memguard.probes.objects.instances import of_instance

GENERATORS: dict[type, str] = {
    types.GeneratorType: "gi_frame",
    types.CoroutineType: "cr_frame",
    types.AsyncGeneratorType: "ag_frame",
}


def of_scope(scope: Scope) -> Iterator[Held]:
    """The variables; not the names that Python gives every module."""
    via = Via.GLOBAL if scope.function is None else Via.LOCAL
    for name, value in scope.variables.items():
        if not name.startswith("__"):
            yield via, name, value


def of_generator(generator: Any) -> Iterator[Held]:
    """The variables of a generator that waits."""
    frame = getattr(generator, GENERATORS[type(generator)])  # a slot of an exact built-in type
    if frame is not None and not frame.f_back and is_user_frame(frame):  # one that runs is a root of its own
        yield Via.PART, None, Scope.of_frame(frame)


def of_context_variable(variable: contextvars.ContextVar[Any]) -> Iterator[Held]:
    """What it stands for where this is asked, its default included: the user reads it by a call of ``get``."""
    try:
        yield Via.ITEM, None, variable.get()
    except LookupError:  # it has no value here
        return


def of_traceback(trace: types.TracebackType | None, running: frozenset[int]) -> Iterator[Held]:
    """The frames of the user's code that an exception came through."""
    for _ in range(FULL):
        if trace is None:
            break
        if id(trace.tb_frame) not in running and is_user_frame(trace.tb_frame):
            scope = Scope.of_frame(trace.tb_frame)
            scope.line = trace.tb_lineno
            yield Via.PART, None, scope
        trace = trace.tb_next


def of_exception(error: BaseException) -> Iterator[Held]:
    """Its traceback, the errors it came from, and its own attributes."""
    for link in ("__traceback__", "__cause__", "__context__"):
        yield Via.PART, None, BaseException.__dict__[link].__get__(error)
    yield from of_instance(error)
