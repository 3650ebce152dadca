"""`memguard.phase`: names a part of the loop, so that its memory is told by itself. No torch."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Protocol, TypeVar, cast, final

F = TypeVar("F", bound=Callable[..., Any])
Path = tuple[str, ...]
"""The names of a phase and of those around it, outermost first."""

LONGEST = 100
"""Characters of a name that are told."""


class Listener(Protocol):
    """Who records phases: each open guard."""

    def phase_start(self, path: Path) -> object:
        """A phase begins; what is returned comes back at its end. Never raises."""

    def phase_end(self, started: object, error: str | None) -> None:
        """It ends, with an exception of a class of that name or without one. Never raises."""


_listeners: list[Listener] = []
"""Those of open guards: `listen` adds, `ignore` takes away."""
_path: ContextVar[Path] = ContextVar("memguard_phase", default=())
_Started = tuple[Token[Path], Path, list[tuple[Listener, object]]]


def listen(listener: Listener) -> None:
    """Tells a guard of phases from now on."""
    _listeners.append(listener)


def ignore(listener: Listener) -> None:
    """Tells it no more."""
    _listeners[:] = [other for other in _listeners if other is not listener]


def current_path() -> Path:
    """The phase that is open in this thread (or asyncio task), with those around it; empty where none is."""
    return _path.get()


@final
class phase:
    """Names a part of the training loop: ``with memguard.phase("rollout"): ...``, or as a decorator.

    Every open guard records the phase: how often it ran and for how long, its peak of allocated and reserved
    memory, and what stays allocated after it. Summary, report, Memory tab and recording have a row for each phase, and
    findings and out-of-memory reports name the phase in which they arose. The peak is what
    ``torch.cuda.reset_peak_memory_stats()`` before and ``max_memory_allocated()`` after the block would report; other
    readers of these counters see no difference. The phase is recorded also where the block ends with an exception.

    Phases may be nested, in functions that call themselves too, and run in several threads: memory is the device's, so
    a phase counts what other threads allocate meanwhile. Without an open guard nothing happens.

    As a decorator it works for functions, coroutine functions and generator functions; a generator's phase lasts from
    its first value to its end.

    Args:
        name: What it is called, like ``"rollout"``. One row sums up all phases of a name (within the same outer one).

    Raises:
        TypeError: The name is not a text.
        ValueError: It is empty.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"memguard.phase takes a name as text, got {name!r}")
        if not name.strip():
            raise ValueError('memguard.phase needs a name, like phase("rollout")')
        self._name = name.strip()[:LONGEST]
        self._open: list[_Started | None] = []

    def __enter__(self) -> None:
        if not _listeners:
            self._open.append(None)
            return
        before = _path.get()
        path = (*before, self._name)
        started = [(listener, listener.phase_start(path)) for listener in tuple(_listeners)]
        self._open.append((_path.set(path), before, started))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        opened = self._open.pop()
        if opened is None:
            return
        token, before, started = opened
        try:
            _path.reset(token)
        except ValueError:  # a generator that is closed in another context than it began in
            _path.set(before)
        for listener, each in reversed(started):
            listener.phase_end(each, kind.__name__ if kind is not None else None)

    def __call__(self, function: F) -> F:
        """The same function, each call of which is a phase."""
        name = self._name

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with phase(name):
                return function(*args, **kwargs)

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            with phase(name):
                return await function(*args, **kwargs)

        @functools.wraps(function)
        def generate(*args: Any, **kwargs: Any) -> Any:
            with phase(name):
                return (yield from function(*args, **kwargs))

        if inspect.iscoroutinefunction(function):
            return cast(F, call_async)
        return cast(F, generate if inspect.isgeneratorfunction(function) else call)
