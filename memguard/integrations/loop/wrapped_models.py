"""A model inside a watched wrapper (``ddp.module``), which the loop may call directly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

import torch
from torch import nn

from memguard.evidence.graphs.graph_marks import is_compiled
from memguard.evidence.guarded_hook import Hook, in_backward
from memguard.integrations.loop.hooks import ForwardListener, is_outermost_call
from memguard.torch_objects.hidden_hooks import HiddenHook
from memguard.torch_objects.module_parts import named_children_of, parameters_of

_COMPILED = "_orig_mod"
_NAMES = frozenset({"module", _COMPILED})
"""What wrappers call it: DistributedDataParallel, AveragedModel, torch.compile."""


def inner_models(wrapper: nn.Module) -> Iterator[nn.Module]:
    """The model that a module wraps, the one that that wraps, and so on.

    A wrapper has no parameters but those of one module in it, which is called as wrappers call it or is of the user's
    own class: a Sequential by another name is how a model is made, and no model in a wrapper. What lies inside a
    compiled graph gets no hook, for Dynamo would compile anew when it goes: of what ``torch.compile`` took, only the
    hooks of a model of the user's own class stay outside of the graph (checked in torch 2.13).
    """
    seen: set[int] = set()
    while id(wrapper) not in seen:
        seen.add(id(wrapper))
        held = [(n, part) for n, part in named_children_of(wrapper) if next(parameters_of(part), None) is not None]
        if len(held) != 1 or any(parameter is not None for parameter in wrapper._parameters.values()):
            return
        name, inner = held[0]
        is_own, in_graph = not type(inner).__module__.startswith("torch.nn."), is_compiled(wrapper)
        if not (is_own or name in _NAMES) or isinstance(inner, torch.jit.ScriptModule):
            return
        if (in_graph and not (is_own and name == _COMPILED)) or inner._compiled_call_impl is not None:
            return
        yield inner
        if in_graph:
            return
        wrapper = inner


@final
class InnerHooks:
    """Tells of the forwards of one model that no other module asked for.

    Of its two hooks the second is there in those forwards alone: all others, and what is compiled, are only to pass by
    the first.

    Args:
        model: The model inside a wrapper.
        listener: Told of each forward.
    """

    def __init__(self, model: nn.Module, listener: ForwardListener) -> None:
        self._number, self._listener = id(model), listener
        self._end = Hook(self._ends, listener.hook_failed)
        self._start = Hook(self._begins, listener.hook_failed)
        self._first = HiddenHook(model, self._start, before=True)
        self._second = HiddenHook(model, self._end, always=True)
        self._first.put_on()

    def stop(self) -> None:
        """Silences both hooks, which stay where they are."""
        self._start.stop()
        self._end.stop()

    def remove(self) -> None:
        """Takes both hooks away."""
        self._first.remove()
        self._second.remove()

    def _begins(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # A replica of DataParallel's has the same hooks; what backward computes again is no forward of the loop's.
        if id(model) != self._number or not is_outermost_call() or in_backward():
            return
        self._second.put_on()
        self._listener.forward_start(model, args, kwargs)

    def _ends(self, model: nn.Module, args: tuple[Any, ...], output: object) -> None:
        if id(model) != self._number or not is_outermost_call() or in_backward():
            return
        if output is not None:  # else torch may be going through the hooks themselves, not through a copy
            self._second.remove()
        self._listener.forward_end(model, args, output)
