"""The validation guard: a forward in eval mode runs under no_grad, unless its graph may be needed.

Its rules stand in the order in which they are asked in `NoGradGuard.decide`. It never enters inference_mode.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import os
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias, cast, final

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from memguard.allowing import GRAD, allowed
from memguard.guards.differentiates import differentiates
from memguard.heap.attributes import is_tensor_class
from memguard.heap.parameters import is_optimized
from memguard.source.fate import Fate, fate_of
from memguard.torch_objects.hidden_hooks import without_number
from memguard.torch_objects.storages import unheard

MOST_STORED = 4
"""Graphs that are watched at a place from where an output may go anywhere, while the program could still use them."""


class Decision(enum.Enum):
    """What is to be done with one forward in eval mode with gradients enabled."""

    GUARD = "guard"
    OBSERVE = "observe"
    LEAVE = "leave"


@final
class NoGradGuard:
    """Decides for one root model which of its forwards run without a graph.

    Args:
        model: The root; held weakly.
        several: Whether other ranks run this model too. All must decide alike, for gradients decide what DDP
            communicates: only what the program itself makes the same on every rank is a reason then, and the moment at
            which a graph dies is not.
    """

    def __init__(self, model: nn.Module, *, several: bool = False) -> None:
        self._model = weakref.ref(model)
        self._several = several
        self._inside: bool | None = None
        self._wanted = False
        self._trained = False
        self._unused = False
        self._watched = False
        self._observed = False
        self._optimized: bool | None = None
        self._stored: dict[Place, int] = {}
        """Where outputs are put where others can reach them: how many graphs were watched there."""
        self._place: Place = ()

    def saw_training_backward(self) -> None:
        """A backward ran through a graph built in training mode: the model is trained the ordinary way."""
        self._trained = True

    def saw_evaluation_backward(self) -> None:
        """A backward ran through a graph built in eval mode: somebody wants these graphs, for ever."""
        self._wanted = True

    def on_unused_graph(self) -> Callable[[], None]:
        """What to call when the graph that was observed last has died without a backward."""
        return functools.partial(self._saw_unused_graph, self._place)

    def _saw_unused_graph(self, place: Place) -> None:
        self._unused = True
        if place in self._stored:
            self._stored[place] = MOST_STORED

    def saw_engine_inside(self) -> None:
        """The forward ran the autograd engine itself."""
        self._inside = True

    def optimizers_changed(self) -> None:
        """A new optimizer (or parameter group) appeared: who is optimized must be asked again."""
        self._optimized = None

    @property
    def trained(self) -> bool:
        """Whether the model was seen being trained the ordinary way."""
        return self._trained

    @property
    def first(self) -> bool:
        """Whether no guarded forward has ended yet: the first one runs with a lookout (see `Lookout`)."""
        return not self._watched

    def passed(self) -> None:
        """A guarded forward ended well."""
        self._watched = True

    def decide(self, args: Iterable[Any], optimizers: Iterable[torch.optim.Optimizer]) -> Decision:
        """What to do with a forward in eval mode with gradients enabled.

        Args:
            args: The forward's positional and keyword values.
            optimizers: Optimizers known so far; when none of them holds a parameter of the model, the process is
                searched once for others.
        """
        model = self._model()
        if model is None or self._wanted or allowed(GRAD):
            return Decision.LEAVE
        if self._inside is None:
            self._inside = differentiates(model)
        if self._inside or asks_for_grad(args):
            return Decision.LEAVE
        fate, self._place = whither()
        if fate is Fate.BACKWARD or (fate is Fate.ESCAPES and not self._several and self._may_be_wanted(self._place)):
            return Decision.OBSERVE
        if self._trained or (self._unused and not self._several):
            return Decision.GUARD
        if self._optimized is None:
            self._optimized = is_optimized([model], optimizers)
        if not self._optimized:
            return Decision.GUARD
        if self._observed and not self._several and not somebody_differentiates():
            return Decision.GUARD  # the last graph still hangs on a loop variable, and nobody here could use it
        self._observed = True
        return Decision.OBSERVE

    def _may_be_wanted(self, place: Place) -> bool:
        """Whether an output that is put somewhere may go to a backward from there, which only its graph's fate tells.

        No longer if one from this place died unused, if nobody in this program could use it, or after a few that nobody
        used.
        """
        seen = self._stored.get(place, 0)
        if seen >= MOST_STORED or (seen and not self._trained and not somebody_differentiates()):
            return False
        self._stored[place] = seen + 1
        return True


@final
class Lookout(TorchFunctionMode):
    """Watches the first guarded forward of a model for a wish to differentiate that its code did not show.

    When a tensor is asked to require grad, or the engine is called, grad mode comes back for the rest of this forward:
    what follows the wish is recorded as it would have been without the guard.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wished = self.over = False

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Passes every call on unchanged; looks at its name and keywords only."""
        if not self.wished and not self.over and _wishes_grad(func, args, kwargs):
            self.wished = True
            torch._C._set_grad_enabled(True)  # what torch.set_grad_enabled calls; checked in torch 2.13
        return func(*args, **(kwargs or {}))

    def leave(self) -> None:
        """Ends the watch; where an interrupt left other modes above this one, it stays and does nothing."""
        depth = torch._C._len_torch_function_stack()  # checked in torch 2.13
        if depth and torch._C._get_function_stack_at(depth - 1) is self:
            self.__exit__(None, None, None)
        self.over = True


_ENGINE_NAMES = frozenset({"backward", "manual_backward", "autograd", "grad", "step", "closure"})


def somebody_differentiates() -> bool:
    """Whether the code of any running function names the autograd engine or an optimizer's step.

    Only then could a graph that is alive now still be meant for a backward.
    """
    frame = sys._getframe(1)
    for _ in range(200):
        if frame.f_back is None:
            return False
        frame = frame.f_back
        if _names_engine(frame.f_code):
            return True
    return True


@functools.lru_cache(maxsize=1024)
def _names_engine(code: types.CodeType) -> bool:
    if not _ENGINE_NAMES.isdisjoint(code.co_names):
        return not code.co_filename.startswith((_TORCH, _OWN))
    return any(_names_engine(inner) for inner in code.co_consts if isinstance(inner, types.CodeType))


# Whether the code that calls a model goes on to a backward.

_TORCH = os.path.dirname(torch.__file__) + os.sep
_OWN = os.path.dirname(os.path.dirname(__file__)) + os.sep


def _wishes_grad(func: Any, args: Any, kwargs: Any) -> bool:
    if kwargs and kwargs.get("requires_grad") is True:
        return True
    name = getattr(func, "__name__", "")
    if name == "requires_grad_":
        return not (len(args) > 1 and args[1] is False) and not (kwargs and kwargs.get("requires_grad") is False)
    if name == "__set__" and getattr(func, "__self__", None) is torch.Tensor.requires_grad:
        return len(args) > 1 and args[1] is True
    return func is torch.Tensor.backward


def asks_for_grad(values: Iterable[Any]) -> bool:
    """Whether any tensor in a forward's arguments requires grad."""
    with unheard():
        return _asks_for_grad(values)


def _asks_for_grad(values: Iterable[Any], depth: int = 3) -> bool:
    for value in values:
        kind = type(value)
        if is_tensor_class(kind):
            if value.requires_grad:
                return True
        elif depth and kind in (tuple, list):
            if _asks_for_grad(value[:64], depth - 1):
                return True
        elif depth and kind is dict and _asks_for_grad(list(value.values())[:64], depth - 1):
            return True
    return False


def watch_graph(output: object, *, used: Callable[[], None], died: Callable[[], None]) -> bool:
    """Follows the graphs of an output without holding them.

    Args:
        output: What a forward returned: a tensor or a nest of tuples, lists and dicts of them.
        used: Called when a backward (or autograd.grad) enters one of the graphs.
        died: Called when all of them are gone and none was ever used.

    Returns:
        Whether there was any graph.
    """
    fate = _Fate(used, died)
    nodes = graphs_of(output)
    for node in nodes:
        without_number(node.register_prehook, fate.use)
        cast("dict[str, object]", node.metadata)[_KEY] = fate
    return bool(nodes)


def graphs_of(output: object) -> list[Any]:
    """The last nodes of the graphs of an output's tensors."""
    if type(output) is torch.Tensor:
        return [] if output.grad_fn is None else [output.grad_fn]
    with unheard():
        return [node for tensor in tensors_of(output) if (node := tensor.grad_fn) is not None]


def tensors_of(output: object, depth: int = 3) -> list[torch.Tensor]:
    """The first tensors in a nest of tuples, lists, dicts and dataclass-like outputs (at most 16)."""
    found: list[torch.Tensor] = []
    _collect(output, depth, found)
    return found


def _collect(value: object, depth: int, found: list[torch.Tensor]) -> None:
    if len(found) >= 16:
        return
    kind = type(value)
    if is_tensor_class(kind):
        found.append(cast("torch.Tensor", value))
    elif depth and issubclass(kind, (tuple, list)):
        for item in cast("list[object]", value)[:16]:
            _collect(item, depth - 1, found)
    elif depth and issubclass(kind, dict):
        for item in list(dict.values(cast("dict[object, object]", value)))[:16]:
            _collect(item, depth - 1, found)


_KEY = "memguard.fate"


class _Fate:
    """Hangs in the metadata of graph nodes and dies with the last of them."""

    __slots__ = ("_died", "_used", "used")

    def __init__(self, used: Callable[[], None], died: Callable[[], None]) -> None:
        self._used, self._died, self.used = used, died, False

    def use(self, gradients: object) -> None:
        """A backward enters the graph."""
        if not self.used:
            self.used = True
            with contextlib.suppress(Exception):  # this is the user's backward
                self._used()

    def __del__(self) -> None:
        if not self.used:
            with contextlib.suppress(Exception):  # at the interpreter's end anything may be gone already
                self._died()


_MOST_FRAMES = 64
_COROUTINE = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR

Place: TypeAlias = tuple[tuple[str, int], ...]
"""The lines at which calls are under way, innermost first."""


def whither() -> tuple[Fate, Place]:
    """What becomes of the value that is being computed, in this function and in those that it returns to; and where.

    By their source alone, which is the same on every rank. BACKWARD where a statement that is being run, or one that
    follows, hands it to a backward. UNUSED only where each use of it is understood as a plain one. ESCAPES otherwise:
    it is put where others can reach it, or goes to what has no source, as an event loop or a thread's end.
    """
    place: Place = ()
    stored_at: Place = ()
    awaited = False
    for frame in _frames():
        code = frame.f_code
        place = (*place, (code.co_filename, frame.f_lineno))
        if awaited and not code.co_flags & _COROUTINE:
            break  # of a task: whoever awaits it has the value later
        awaited = bool(code.co_flags & _COROUTINE)
        fate = fate_of(code.co_filename, frame.f_lineno, code.co_name)
        if fate is Fate.BACKWARD:
            return fate, place
        if fate in (Fate.ESCAPES, Fate.ESCAPES_AND_RETURNED):
            stored_at = stored_at or place
        if fate in (Fate.ESCAPES, Fate.UNUSED):
            return (Fate.ESCAPES, stored_at) if stored_at else (fate, place)
    return Fate.ESCAPES, stored_at or place


def _frames() -> Iterator[types.FrameType]:
    """The frames of the running program, innermost first, without torch's and memguard's."""
    frame: types.FrameType | None = sys._getframe(1)
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return
        if not frame.f_code.co_filename.startswith((_TORCH, _OWN)):
            yield frame
        frame = frame.f_back
