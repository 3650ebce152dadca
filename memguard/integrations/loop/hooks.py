"""The hooks on a root model, which translate its forwards to events."""

from __future__ import annotations

import sys
from inspect import getattr_static
from types import FrameType
from typing import Any, Protocol, final

from torch import nn

from memguard.evidence.guarded_hook import Hook
from memguard.heap.frames import read_locals
from memguard.torch_objects.hidden_hooks import HiddenHook


class ForwardListener(Protocol):
    """Who hears of the forwards of root models."""

    def forward_start(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A forward begins."""

    def forward_end(self, model: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """A forward is over; after an exception the output is None."""

    def hook_failed(self, error: Exception) -> None:
        """One of the two raised: nothing more is heard from that hook; the error is not to be kept."""


class TorchHook(Protocol):
    """What torch calls before or after a forward."""

    def __call__(self, model: nn.Module, args: tuple[Any, ...], third: Any, /) -> None:
        """A forward begins with these arguments, or is over with this output."""

    def stop(self) -> None:
        """Nothing is heard of it any more."""


@final
class RootHooks:
    """Two forward hooks on one root model, outermost on its call.

    Args:
        model: The module as it is called by the loop.
        listener: Told of each forward.
        hooks: Those that tell it of a forward's start and end; None makes them.
    """

    def __init__(
        self, model: nn.Module, listener: ForwardListener, hooks: tuple[TorchHook, TorchHook] | None = None
    ) -> None:
        self._hooks = start, end = hooks or (
            Hook(listener.forward_start, listener.hook_failed),
            Hook(listener.forward_end, listener.hook_failed),
        )
        # What other hooks do lies inside a guarded forward, and the last one undoes it on errors.
        self._hidden = [HiddenHook(model, start, before=True), HiddenHook(model, end, always=True)]
        for hidden in self._hidden:
            hidden.put_on()

    def stop(self) -> None:
        """Silences both hooks, which stay where they are: safe while torch goes through them."""
        for hook in self._hooks:
            hook.stop()

    def remove(self) -> None:
        """Takes both hooks away; a second call does nothing."""
        for hidden in self._hidden:
            hidden.remove()


def can_be_called(model: nn.Module) -> bool:
    """Whether a module has a forward; a ModuleList has none, its parts are called."""
    own = object.__getattribute__(model, "__dict__")
    # Read without `__get__`: that of a scripted module's class raises.
    return getattr_static(type(model), "forward") is not nn.Module.forward or "forward" in own


_CALL = nn.Module._call_impl.__code__  # checked in torch 2.13
_USUAL = 6
"""Frames from `OpenForwards.enter` up to the call in a plain loop; nearer ones are ours, and one function inside it.

To ask for it makes one frame's object, to go there from frame to frame six. Elsewhere there is another function's.
"""


@final
class OpenForwards:
    """How deep the loop is in forwards of root models.

    KeyboardInterrupt and SystemExit leave a forward without a word to its hooks, so a depth is checked against the
    stack before it is believed.
    """

    def __init__(self) -> None:
        self.depth = 0
        self._outermost = 0

    def enter(self) -> bool:
        """A forward begins; whether it is an outermost one."""
        self.depth += 1
        if self.depth > 1:
            return False
        try:
            call = sys._getframe(_USUAL)
        except ValueError:
            call = None  # the stack is not so deep
        if call is None or call.f_code is not _CALL:
            call = _next_call(sys._getframe(1))
        self._outermost = id(call) if call is not None else 0
        return True

    def find(self, model: int, *, in_hook: bool) -> tuple[nn.Module, FrameType] | None:
        """A forward that is under way, whether or not it was told to `enter`: the module, and the frame of its call.

        Args:
            model: The identity of the module that was called.
            in_hook: Whether a hook asks: then the innermost call is its own.
        """
        call = _next_call(sys._getframe(1))
        if in_hook and call is not None:
            call = _next_call(call.f_back)
        while call is not None:
            called = read_locals(call).get("self")
            if id(called) == model and isinstance(called, nn.Module):
                return called, call
            call = _next_call(call.f_back)
        return None

    def adopt(self, model: int, *, in_hook: bool) -> nn.Module | None:
        """A forward of this model may have begun without a word to `enter`; the model, if it is still under way."""
        found = self.find(model, in_hook=in_hook)
        if found is None:
            return None
        self.depth, self._outermost = 1, id(found[1])
        return found[0]

    def leave(self) -> bool:
        """A forward is over; whether it was an outermost one."""
        if self.depth > 1:
            self.depth -= 1
            return False
        self.depth = 0
        return True

    def interrupted(self, *, in_hook: bool) -> bool:
        """Whether forwards were left without a word; then none is open any more.

        Args:
            in_hook: Whether a hook asks before it enters: then the innermost call is its own, and no evidence.
        """
        if not self.depth or not self._outermost:
            return False
        call = _next_call(sys._getframe(1))
        if in_hook and call is not None:
            call = _next_call(call.f_back)
        while call is not None:
            if id(call) == self._outermost:
                return False
            call = _next_call(call.f_back)
        self.depth = 0
        return True


def is_outermost_call() -> bool:
    """Whether the forward in whose hook this is asked was called by no other module's."""
    call = _next_call(sys._getframe(1))
    return call is None or _next_call(call.f_back) is None


def _next_call(frame: FrameType | None) -> FrameType | None:
    """The nearest frame up the stack in which torch calls a module with hooks."""
    while frame is not None and frame.f_code is not _CALL:
        frame = frame.f_back
    return frame
