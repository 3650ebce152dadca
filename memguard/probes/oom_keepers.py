"""Who keeps what should be gone when memory has run out: variables that pile tensors up, exceptions, idle models."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from memguard.facts import NOWHERE, Place
from memguard.postmortem.scene import HeldException, Hoard
from memguard.probes.frames import is_user_frame, read_locals
from memguard.probes.ledger import tensors_in
from memguard.probes.oom_census import Census
from memguard.probes.oom_stack import Stack
from memguard.probes.sites import place_of

MOST_CANDIDATES = 64
MOST_TENSORS = 4096
MOST_ATTRIBUTES = 256
_CONTAINERS = (list, tuple, set, deque)


def find_hoards(census: Census, stack: Stack) -> tuple[Hoard, ...]:
    """Variables and attributes of the user's running code that hold many tensors, the heaviest first."""
    candidates: list[tuple[int, str, Place, list[torch.Tensor]]] = []
    seen: set[int] = set()
    for name, value, place in _variables(stack):
        if id(value) in seen:
            continue
        seen.add(id(value))
        tensors = [tensor for tensor in _tensors_of(value) if census.key_of(tensor) is not None]
        if len(tensors) >= 3 or (len(tensors) == 1 and tensors[0].grad_fn is not None):
            candidates.append((len(tensors), name, place, tensors))
    candidates.sort(key=lambda each: -each[0])
    found = []
    for count, name, place, tensors in candidates[:MOST_CANDIDATES]:
        keys = census.reach(tensors)
        own = {key for tensor in tensors if (key := census.key_of(tensor)) is not None}
        total = sum(keys.values())
        direct = sum(size for key, size in keys.items() if key in own)
        if total:
            held = Place(file=place.file, line=place.line, function=place.function, holder=name)
            found.append(Hoard(place=held, tensors=count, bytes=total, graph=total > 2 * direct))
    return tuple(sorted(found, key=lambda hoard: -hoard.bytes)[:8])


def find_exceptions(census: Census, stack: Stack) -> tuple[HeldException, ...]:
    """Exceptions whose finished frames hold tensors that nothing running holds, the heaviest first."""
    needed: dict[int, int] | None = None
    found = []
    for error in census.exceptions:
        names: list[tuple[int, str]] = []
        tensors: list[torch.Tensor] = []
        place = NOWHERE
        trace = error.__traceback__
        while trace is not None:
            frame = trace.tb_frame
            if id(frame) not in stack.running:
                for name, value in read_locals(frame).items():
                    held = list(tensors_in(value, 2))
                    own = sum(census.reach(held).values()) if held else 0
                    if own:
                        names.append((own, f"{frame.f_code.co_name}() `{name}`"))
                        tensors += held
                        if is_user_frame(frame):
                            place = Place(
                                file=frame.f_code.co_filename, line=trace.tb_lineno, function=frame.f_code.co_name
                            )
            trace = trace.tb_next
        if not tensors:
            continue
        if needed is None:
            needed = census.reach(_in_use(stack))
        exclusive = sum(size for key, size in census.reach(tensors).items() if key not in needed)
        if exclusive:
            names.sort(reverse=True)
            found.append(
                HeldException(
                    exception=type(error).__name__,
                    handling=id(error) in stack.handled,
                    names=tuple(dict.fromkeys(name for _, name in names)),
                    bytes=exclusive,
                    place=place,
                )
            )
    return tuple(sorted(found, key=lambda held: -held.bytes)[:4])


def name_of(thing: object, stack: Stack) -> str | None:
    """The variable that holds an object, directly or in a container; None where none of the running code does."""
    for name, value, _ in _variables(stack):
        if value is thing:
            return name
        kind = type(value)
        inside: Any = ()
        if issubclass(kind, dict):
            inside = list(dict.values(value))[:MOST_TENSORS]  # type: ignore[arg-type]
        elif issubclass(kind, _CONTAINERS):
            inside = list(value)[:MOST_TENSORS]  # type: ignore[call-overload]
        for item in inside:
            if item is thing or (
                issubclass(type(item), (tuple, list, dict))
                and any(part is thing for part in (item.values() if issubclass(type(item), dict) else item))
            ):
                return name
    return None


def _variables(stack: Stack) -> Iterator[tuple[str, object, Place]]:
    """Names and values that the user's code can reach: locals, globals of its modules, attributes of its objects."""
    modules: set[int] = set()
    for frame in stack.frames:
        if not is_user_frame(frame):
            continue
        place = place_of(frame)
        for name, value in read_locals(frame).items():
            yield name, value, place
            yield from _attributes(name, value, place)
        if id(frame.f_globals) not in modules and frame.f_locals is not frame.f_globals:
            modules.add(id(frame.f_globals))
            place = Place(file=frame.f_code.co_filename)
            for name, value in list(frame.f_globals.items()):
                if not name.startswith("__"):
                    yield name, value, place
                    yield from _attributes(name, value, place)


def _attributes(name: str, value: object, place: Place) -> Iterator[tuple[str, object, Place]]:
    """Attributes of an instance of a class of the user's (or a module): ``self.losses``, ``model.history``."""
    kind = type(value)
    if kind.__module__ in ("builtins", "torch", "types") or issubclass(kind, (type, torch.Tensor)):
        return
    if kind.__module__.partition(".")[0] in ("torch", "memguard", "lightning", "pytorch_lightning"):
        return
    try:
        attributes: Any = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return
    if not issubclass(type(attributes), dict):
        return
    hidden = ("_parameters", "_buffers", "_modules") if issubclass(kind, nn.Module) else ()
    for attribute, inner in list(attributes.items())[:MOST_ATTRIBUTES]:
        if attribute not in hidden:
            yield f"{name}.{attribute}" if name != "self" else f"{kind.__name__}.{attribute}", inner, place


def _tensors_of(value: Any) -> list[torch.Tensor]:
    kind = type(value)
    if issubclass(kind, torch.Tensor):
        return [value]
    if issubclass(kind, dict):
        items: Any = list(dict.values(value))[:MOST_TENSORS]
    elif issubclass(kind, _CONTAINERS):
        items = list(value)[:MOST_TENSORS]
    else:
        return []
    found: list[torch.Tensor] = []
    for item in items:
        found += tensors_in(item, 2)
    return found


def _in_use(stack: Stack) -> Iterator[torch.Tensor]:
    for frame in stack.frames:
        for value in read_locals(frame).values():
            yield from tensors_in(value, 2)
