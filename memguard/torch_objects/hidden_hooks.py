"""Forward hooks that torch calls but that no file, copy, script or count contains.

A hook of ours stands beside the hooks in a module's dictionary, not among them: a `HookDict` takes the dictionary's
place and names our hooks to ``torch.nn.Module._call_impl`` alone. To everyone else (pickle, deepcopy, torch.jit.script,
Dynamo, ``len``) it is the OrderedDict that it replaced.

The numbers of torch's handles are left to the program too: they are the keys of its hooks, and stand in what it saves.
Hooks of other kinds, on optimizers and on nodes of a graph, are registered with `without_number`.
"""

from __future__ import annotations

import gc
import itertools
import sys
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, final

import torch
from torch import nn
from torch.nn.modules import module as torch_module
from torch.utils.hooks import RemovableHandle

_CALL = nn.Module._call_impl.__code__  # checked in torch 2.4 and 2.13
_INNER = next((part for part in _CALL.co_consts if isinstance(part, types.CodeType) and part.co_name == "inner"), _CALL)
"""What goes through the hooks: the call itself, and in later releases a function inside of it."""

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def skipped_by_dynamo(function: FunctionT) -> FunctionT:
    """Code of ours that Dynamo leaves to Python, with all that it calls: hooks, and what a storage's end calls.

    ``torch._dynamo.export`` accepts one graph, and each hook that Dynamo compiles would be a graph of its own.
    """
    dynamo: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)  # private; checked in 2.13
    if hasattr(dynamo, "set_code_exec_strategy"):
        skip = dynamo._FrameAction.SKIP
        dynamo.set_code_exec_strategy(function.__code__, dynamo._FrameExecStrategy(skip, skip))
    elif hasattr(dynamo, "skip_code"):
        dynamo.skip_code(function.__code__)
    return function


_frame, _contains, _items, _length = sys._getframe, OrderedDict.__contains__, OrderedDict.items, OrderedDict.__len__

HandleT = TypeVar("HandleT")


@final
class HookDict(OrderedDict[Any, Any]):
    """A dictionary of a module's hooks: the program's own are in it, ours beside it."""

    __slots__ = ("ours",)

    ours: tuple[tuple[HiddenHook, Callable[..., object]], ...]

    def __init__(self, *hooks: Any) -> None:
        OrderedDict.__init__(self, *hooks)
        self.ours = ()

    @skipped_by_dynamo
    def __bool__(self) -> bool:
        if _length(self):
            return True
        code = _frame(1).f_code
        return (code is _CALL or code is _INNER) and bool(self.ours)

    @skipped_by_dynamo
    def items(self) -> Any:
        """The program's hooks; for torch's call ours around them, first before a forward and last after it."""
        code, ours = _frame(1).f_code, self.ours
        if not ours or (code is not _INNER and code is not _CALL):
            return _items(self)
        if not _length(self):
            return ours
        return (*ours, *_items(self)) if ours[0][0].before else (*_items(self), *ours)

    @skipped_by_dynamo
    def __contains__(self, key: object) -> bool:
        return key.has_extra if type(key) is HiddenHook else _contains(self, key)

    def copy(self) -> Any:
        """The program's hooks in an ordinary dictionary."""
        return OrderedDict(_items(self))

    def __reduce__(self) -> Any:
        return self.copy().__reduce__()


HookDict.__name__ = HookDict.__qualname__ = OrderedDict.__name__  # it prints as what it replaced
HookDict.__module__ = OrderedDict.__module__


@final
class HiddenHook:
    """A hook of ours, on one module or on all.

    Args:
        module: The module, which is not kept alive; None for the calls of all modules.
        hook: What torch calls: before a forward with module, arguments and keywords (of all modules: without these),
            after it with module, arguments and output.
        before: Whether before the forward.
        always: Whether after a forward that raised too, with None for its output.
    """

    __slots__ = ("_hook", "_hooks", "_names", "_owner", "before", "has_extra")

    _NAMES: ClassVar = {
        False: ("_forward_hooks", "_forward_hooks_always_called"),
        True: ("_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
    }

    def __init__(
        self, module: nn.Module | None, hook: Callable[..., object], *, before: bool = False, always: bool = False
    ) -> None:
        owner: Any = torch_module if module is None else module
        self._owner, self._hook, self.before = weakref.ref(owner), hook, before
        self.has_extra = always or (before and module is not None)
        """Whether it is in the dictionary of those that get keywords, or are always called."""
        self._names: tuple[str, ...] = self._NAMES[before]
        if module is None:
            self._names = tuple([f"_global{name}" for name in self._names])
        self._hooks: weakref.ref[HookDict] | None = None

    def put_on(self) -> bool:
        """Is called from now on; returns whether its module is still there."""
        owner = self._owner()
        if owner is None:
            return False
        hooks, *_ = [_hook_dict(owner, name) for name in self._names[: 1 + self.has_extra]]
        self._hooks = weakref.ref(hooks)  # first: what an interrupt leaves here can be taken away
        if all(hidden is not self for hidden, _ in hooks.ours):
            added = ((self, self._hook),)
            hooks.ours = (*added, *hooks.ours) if self.before else (*hooks.ours, *added)
        return True

    def rest(self) -> None:
        """Is not called until it is put on again; cheaper than to remove it."""
        hooks = self._hooks() if self._hooks is not None else None
        if hooks is not None:
            hooks.ours = tuple([one for one in hooks.ours if one[0] is not self])

    def remove(self) -> None:
        """Is not called any more, and with the last one the module has torch's dictionaries; once more does nothing."""
        self.rest()
        owner = self._owner()
        attributes = object.__getattribute__(owner, "__dict__") if owner is not None else {}
        hooks = attributes.get(self._names[0])
        if type(hooks) is HookDict and not hooks.ours:
            for name in self._names:
                if type(attributes.get(name)) is HookDict and not attributes[name]:
                    attributes[name] = OrderedDict()  # one with hooks of the program's stays: handles point to it


def without_number(register: Callable[..., HandleT], *hook: Any) -> HandleT:
    """Registers a hook of ours with a function of torch's, under a number that the program's hooks never get."""
    theirs = RemovableHandle.next_id
    try:
        RemovableHandle.next_id = next(numbers_of_ours)
        return register(*hook)
    finally:
        RemovableHandle.next_id = theirs


numbers_of_ours = itertools.count(-(2**62), -1)
"""Downwards: torch counts upwards, should an interrupt leave it one of these."""


def _hook_dict(owner: object, name: str) -> HookDict:
    attributes = object.__getattribute__(owner, "__dict__")
    hooks = attributes[name]
    if type(hooks) is HookDict:
        return hooks
    ours = attributes[name] = HookDict(hooks)
    if hooks and weakref.getweakrefs(hooks):
        _point_handles(hooks, ours)
    return ours


def _point_handles(old: Any, new: HookDict) -> None:
    """The program's handles of hooks in one dictionary remove them from the one that took its place."""
    there = weakref.ref(new)
    for handle in gc.get_objects():
        if issubclass(type(handle), RemovableHandle):
            if handle.hooks_dict_ref() is old:
                handle.hooks_dict_ref = there
            if any(ref() is old for ref in handle.extra_dict_ref):
                handle.extra_dict_ref = tuple([there if ref() is old else ref for ref in handle.extra_dict_ref])
