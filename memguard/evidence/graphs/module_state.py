"""Whether a module keeps a recurrent state in its own attribute.

Or a function in a variable: a moving average that it computes with.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from types import FrameType
from typing import Any

import torch
from torch import nn

from memguard.heap.attributes import attributes_of, is_tensor, is_user_class
from memguard.heap.frames import read_locals
from memguard.heap.roots import submodules_of
from memguard.records.facts import Place
from memguard.source.expressions import Chain
from memguard.source.states import called_chain, is_blended_state, is_made_by_part, is_read_first
from memguard.source.states import is_fed_back as feeds_itself

_FORWARD = "forward"


def is_own_memory(place: Place, models: Iterable[nn.Module], frames: Iterable[FrameType] = ()) -> bool:
    """Whether what is kept is a memory: each batch reads it, or a part of the model makes it from its old value.

    So is a moving average that is computed with. A running sum or mean that is only shown is none.

    Args:
        place: The statement that keeps.
        models: The models, one of which has the memory.
        frames: The user's frames, in which what has it, or the variable, may be instead.
    """
    owner, _, name = (place.holder or "").rpartition(".")
    if place.file is None or place.line is None or not name:
        return False
    if not owner:
        return _is_tensor_of(frames, place.file, name) and is_blended_state(place.file, place.line, name)
    for one in _owners(models, frames, owner.rpartition(".")[2]):
        attributes = attributes_of(one)
        buffers = attributes.get("_buffers")
        value: Any = attributes.get(name, dict.get(buffers, name) if isinstance(buffers, dict) else None)
        if is_tensor(value):
            if not _has_several(value):
                return False  # an average rather than a memory
            is_read = issubclass(type(one), nn.Module) and is_read_first(place.file, place.line, name)
            is_state = is_read or is_blended_state(place.file, place.line, f"self.{name}")
            within = functools.partial(is_module, variables={"self": one})
            return is_state or is_made_by_part(place.file, place.line, name, within)
    return False


def _is_tensor_of(frames: Iterable[FrameType], file: str, name: str) -> bool:
    """Whether a function of a file has more than a number in a variable: of one, an average is only shown."""
    here = (frame for frame in frames if frame.f_code.co_filename == file)
    values: Iterator[Any] = (read_locals(frame).get(name) for frame in here)
    return any(is_tensor(value) and _has_several(value) for value in values)


def _has_several(tensor: torch.Tensor) -> bool:
    """Whether it has more than one element; a subclass's own code is not asked."""
    with torch._C.DisableTorchFunctionSubclass():
        return torch.Tensor.numel(tensor) > 1


def _owners(models: Iterable[nn.Module], frames: Iterable[FrameType], name: str) -> Iterator[object]:
    """Objects whose class has a name: parts of the models, what variables stand for, and what that has, with its parts.

    A module of which only methods and parts are called is none of the models.
    """
    seen: set[int] = set()
    for part in (part for model in models for part in submodules_of(model, seen)):
        if type(part).__name__ == name:
            yield part
    for frame in frames:
        for value in list(read_locals(frame).values()):
            is_model = issubclass(type(value), nn.Module)
            if is_model or (is_user_class(type(value)) and not issubclass(type(value), type)):
                below = [value] if is_model else [value, *attributes_of(value).values()]
                yield from (part for one in below for part in _with_parts(one, seen) if type(part).__name__ == name)


def _with_parts(value: object, seen: set[int]) -> Iterator[object]:
    """Something, and of a module its submodules, each once."""
    return submodules_of(value, seen) if issubclass(type(value), nn.Module) else iter((value,))


def is_fed_back(place: Place, frames: Iterable[FrameType]) -> bool:
    """Whether what is kept is what a module made from what was there before, as a memory; a running sum is not.

    Args:
        place: The statement that keeps.
        frames: The user's frames, innermost first.
    """
    here = (frame for frame in frames if frame.f_code.co_filename == place.file)
    scopes = [{**frame.f_globals, **read_locals(frame)} for frame in here]
    return feeds_itself(place.source, lambda chain: any(is_module(chain, variables) for variables in scopes))


def is_filled_by_model(place: Place, frames: Iterable[FrameType]) -> bool:
    """Whether what is kept is put there by a model's own forward, as the keys and values of its attention are.

    Args:
        place: The statement that keeps: a call of the model, or one that its forward makes.
        frames: The user's frames, in which the model is.
    """
    if any((function or "").endswith(f".{_FORWARD}") for function in (place.function, place.caller_function)):
        return True
    called = called_chain(place.source)
    return called is not None and any(is_module(called, {**frame.f_globals, **read_locals(frame)}) for frame in frames)


def is_module(chain: Chain, variables: Mapping[str, Any]) -> bool:
    """Whether a name, or a chain of attributes, is a module or a container of some; no code of the user's runs."""
    (_, name), *steps = chain
    value = variables.get(str(name))
    for kind, key in steps:
        if kind == "call":
            return False
        if kind == "attr":
            attributes = attributes_of(value)
            modules = attributes.get("_modules")
            value = attributes.get(str(key), dict.get(modules, str(key)) if isinstance(modules, dict) else None)
    return issubclass(type(value), nn.Module)
