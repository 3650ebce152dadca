"""Where the program was when memory ran out: frames, line, phase, model."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import nn

from memguard.heap.attributes import is_tensor
from memguard.heap.containers import tensors_in
from memguard.heap.frames import frames_from, is_user_frame, place_of, read_locals
from memguard.records.facts import NOWHERE, Place
from memguard.source.fate import Fate, fate_of

_CALLS = ("_wrapped_call_impl", "_call_impl")
_MOST = 400
_TORCH = str(Path(torch.__file__).parent)


@dataclass(slots=True)
class Stack:
    """The frames of the failing code, innermost first; it is let go of as soon as the scene is drawn."""

    frames: list[FrameType]
    outside: int = 0
    """The first frame that is not inside a module's forward."""
    running: set[int] = field(default_factory=set)
    """Ids of all frames that run, or belong to the failing error."""
    site: Place = NOWHERE
    call_site: Place = NOWHERE
    """The user's line that called the outermost module."""
    inputs: tuple[tuple[int, ...], ...] = ()
    """Shapes of the tensors that this module was called with."""
    phase: str | None = None
    model: nn.Module | None = None
    """The outermost module whose forward failed."""
    optimizer: torch.optim.Optimizer | None = None
    """The one whose step failed."""
    losses: list[torch.Tensor] = field(default_factory=list)
    """What the failing backward began from."""
    handled: set[int] = field(default_factory=set)
    """Ids of the errors inside whose handlers the failing code ran."""


def stack_of(error: BaseException | None) -> Stack:
    """The frames of an error's traceback, or where there is no error yet, of the running code.

    Args:
        error: The error; None while the allocator is still asking.
    """
    stack = Stack([])
    # No local variable may hold a frame: this function's own is among them, and a cycle would keep all their tensors.
    if error is not None:
        stack.frames += _failed(error.__traceback__)
    else:
        stack.frames += frames_from(sys._getframe(1))
        if threading.current_thread() is not threading.main_thread():
            stack.frames += frames_from(sys._current_frames().get(threading.main_thread().ident or 0))
    stack.running = {id(each) for each in stack.frames}
    stack.running.update(id(each) for top in sys._current_frames().values() for each in frames_from(top))
    del stack.frames[_MOST:]
    context = error.__context__ if error is not None else sys.exc_info()[1]
    while context is not None and id(context) not in stack.handled:
        stack.handled.add(id(context))
        context = context.__context__
    _read(stack)
    return stack


def _read(stack: Stack) -> None:
    wants_caller = False
    for index, frame in enumerate(stack.frames):
        code = frame.f_code
        if (stack.site is NOWHERE or wants_caller) and is_user_frame(frame):
            place = place_of(frame)
            stack.site = place if stack.site is NOWHERE else stack.site
            stack.call_site, wants_caller = place if wants_caller else stack.call_site, False
        file, name = code.co_filename.replace("\\", "/"), code.co_name
        if name in _CALLS and "/torch/nn/modules/module.py" in file:
            module = read_locals(frame).get("self")
            if issubclass(type(module), nn.Module):
                stack.model = module  # type: ignore[assignment]
                given = [value for name in ("args", "kwargs") for value in tensors_in(read_locals(frame).get(name), 2)]
                stack.inputs = tuple(tuple(tensor.shape) for tensor in given)
                wants_caller, stack.outside = True, index + 1
                stack.phase = stack.phase or "forward"
        elif name == "step" and stack.optimizer is None:  # of torch.optim, or of a class of the user's
            optimizer = read_locals(frame).get("self")
            if issubclass(type(optimizer), torch.optim.Optimizer):
                stack.optimizer = optimizer  # type: ignore[assignment]
                stack.phase = stack.phase or "optimizer step"
        elif name == "backward" and file.endswith("/torch/autograd/__init__.py"):
            stack.phase = stack.phase or "backward"
            tensors: Any = read_locals(frame).get("tensors")
            for tensor in tensors if issubclass(type(tensors), (tuple, list)) else (tensors,):
                if is_tensor(tensor):
                    stack.losses.append(tensor)


def is_unused(stack: Stack) -> bool | None:
    """Whether no backward will use what the failing forward computes, by the source of the functions that wait for it.

    Args:
        stack: Where the program stood; of running code, not of an error that has left its functions.
    """
    if stack.phase != "forward":
        return None
    for frame in stack.frames[stack.outside :]:
        if not is_user_frame(frame):
            if frame.f_code.co_filename.startswith(_TORCH):  # a decorator's
                continue
            return None  # a library's loop: what it does with the value, its own code says
        fate = fate_of(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
        if fate is not Fate.RETURNED:
            return {Fate.BACKWARD: False, Fate.UNUSED: True}.get(fate)
    return None


def _failed(trace: TracebackType | None) -> Iterator[FrameType]:
    found: list[FrameType] = []
    while trace is not None and len(found) < 10 * _MOST:
        found.append(trace.tb_frame)
        trace = trace.tb_next
    yield from reversed(found)
