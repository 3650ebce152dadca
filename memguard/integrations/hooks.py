"""The hooks on a root model: they translate its forwards to events, and leave no trace in copies and pickles."""

from __future__ import annotations

from typing import Any, Protocol, final

from torch import nn
from torch.utils.hooks import RemovableHandle

from memguard.probes.hook import Hook


class ForwardListener(Protocol):
    """Who hears of the forwards of root models; it must not raise."""

    def forward_start(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A forward begins."""

    def forward_end(self, model: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """A forward is over; after an exception the output is None."""


@final
class RootHooks:
    """Two forward hooks on one root model, outermost on its call.

    Args:
        model: The module as it is called by the loop.
        listener: Told of each forward.
    """

    def __init__(self, model: nn.Module, listener: ForwardListener) -> None:
        start, end = Hook(listener.forward_start), Hook(listener.forward_end)
        # First in, last out: what other hooks do lies inside a guarded forward, and always_call undoes it on errors.
        self._handles: list[RemovableHandle] = [
            model.register_forward_pre_hook(start, prepend=True, with_kwargs=True),
            model.register_forward_hook(end, always_call=True),
        ]

    def remove(self) -> None:
        """Takes both hooks away; a second call does nothing."""
        while self._handles:
            self._handles.pop().remove()
