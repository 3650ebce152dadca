"""Which module's call made each node of a graph, and what was allocated as each call ended.

Autograd numbers its nodes in the order in which they are made. The number that comes next, noted as a module's forward
begins and ends, tells the module of every node without touching one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from threading import get_ident
from types import FunctionType
from typing import Any, NamedTuple, final

import torch
from torch import nn

from memguard.evidence.guarded_hook import Hook
from memguard.heap.frames import call_site, is_user_file
from memguard.records.facts import Place
from memguard.records.stats import MemoryStats
from memguard.torch_objects.hidden_hooks import HiddenHook
from memguard.torch_objects.module_parts import named_parts_of

next_number: Callable[[], int] | None = getattr(torch._C._autograd, "_get_sequence_nr", None)  # checked in torch 2.13
MOST_CALLS = 20_000
_DEEPEST = 16
"""Modules within one another: each level's hooks are a frame more, and frames are limited."""


class Call(NamedTuple):
    """A module whose forward ran."""

    module: str
    """Its path in the model, or its class where it is the model itself."""
    place: Place
    """Its forward, where that is the user's; else the line that called it."""


class Moment(NamedTuple):
    """What was allocated at a moment of a batch."""

    kind: str
    """What ran until then: ``forward``, ``loss``, ``backward`` or ``step``."""
    module: str
    number: int
    """The number of the next node that is made, or of the one that runs next."""
    allocated_bytes: int
    peak_bytes: int
    """The most since the batch began."""


@final
class ModuleCalls:
    """Hooks on all modules, for one forward."""

    def __init__(self, read: Callable[[], MemoryStats], failed: Callable[[Exception], None]) -> None:
        self._read = read
        self._hooks = (
            HiddenHook(None, Hook(self._enter, failed), before=True),
            HiddenHook(None, Hook(self._leave, failed), always=True),
        )
        self.calls: list[Call] = []
        self.moments: list[Moment] = []
        self._names: dict[int, str] = {}
        self._begins: list[int] = []
        self._called: list[int] = []
        self._open: list[int] = []
        self._thread = 0

    def begin(self, model: nn.Module, models: Iterable[nn.Module]) -> None:
        """The forward of a model begins.

        Args:
            model: It, maybe a part of one of the models.
            models: Those by whose names its parts are called.
        """
        self._thread = get_ident()
        for root in (*models, model):
            for name, part in named_parts_of(root):
                self._names.setdefault(id(part), name or type(root).__name__)
        self._go_into(model)
        if max((name.count(".") for name in self._names.values()), default=0) < _DEEPEST:
            for hook in self._hooks:
                hook.put_on()

    def end(self) -> None:
        """It is over: the hooks go."""
        for hook in self._hooks:
            hook.remove()
        if self._open:
            self._note(-1)
            self._open.clear()

    def call_of(self, number: int) -> int:
        """The position of the call that made a node; -1 for what came after the forward."""
        at = bisect_right(self._begins, number) - 1
        return self._called[at] if at >= 0 else -1

    def moment(self, kind: str, module: str, number: int) -> None:
        """Notes what is allocated now."""
        now = self._read()
        if now.allocated_bytes is not None and now.allocated_peak_bytes is not None:
            self.moments.append(Moment(kind, module, number, now.allocated_bytes, now.allocated_peak_bytes))

    def _enter(self, module: nn.Module, *args: Any) -> None:
        if get_ident() == self._thread and len(self._begins) < MOST_CALLS:
            self._go_into(module)

    def _leave(self, module: nn.Module, *args: Any) -> None:
        if get_ident() != self._thread or len(self._open) < 2 or len(self._begins) >= MOST_CALLS:
            return
        left = self._open.pop()
        self._note(self._open[-1])
        self.moment("forward", self.calls[left].module, self._begins[-1])

    def _go_into(self, module: nn.Module) -> None:
        name = self._names.get(id(module), type(module).__name__)
        self.calls.append(Call(name, _place_of(module)))
        self._open.append(len(self.calls) - 1)
        self._note(self._open[-1])

    def _note(self, call: int) -> None:
        if next_number is not None:
            self._begins.append(next_number())
            self._called.append(call)


def _place_of(module: nn.Module) -> Place:
    forward = getattr(type(module), "forward", None)
    if type(forward) is FunctionType and is_user_file(forward.__code__.co_filename):
        code = forward.__code__
        return Place(file=code.co_filename, line=code.co_firstlineno, function=forward.__qualname__)
    return call_site()
