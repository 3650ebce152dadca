"""Whether a statement makes a state from itself by a model: ``memory = model.write(h, memory)``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any

from torch import nn

from memguard.facts import Place
from memguard.heap.attributes import attributes_of
from memguard.heap.frames import read_locals
from memguard.source.expressions import Chain
from memguard.source.states import is_fed_back as feeds_itself


def is_fed_back(place: Place, frames: Iterable[FrameType]) -> bool:
    """Whether what is kept is what a module made from what was there before, as a memory; a running sum is not.

    Args:
        place: The statement that keeps.
        frames: The user's frames, innermost first.
    """
    here = (frame for frame in frames if frame.f_code.co_filename == place.file)
    scopes = [{**frame.f_globals, **read_locals(frame)} for frame in here]
    return feeds_itself(place.source, lambda chain: any(is_module(chain, variables) for variables in scopes))


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
