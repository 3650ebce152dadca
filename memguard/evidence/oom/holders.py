"""What holds memory after an out-of-memory error: growing variables, locals, kept exceptions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from types import FrameType
from typing import Any

import torch

from memguard.evidence.oom.census import TOP, Census
from memguard.evidence.oom.variables import (
    Feedback,
    Stack,
    Variable,
    filling_statement,
    holder_of,
    items_of,
    variables_of,
)
from memguard.heap.attributes import is_tensor, is_user_class
from memguard.heap.containers import container_of, tensors_in
from memguard.heap.frames import failed_frames, is_user_frame, place_of, read_locals
from memguard.postmortem.scene import HeldException, KeptTensors, TopLine
from memguard.records.facts import NOWHERE, Place
from memguard.source.model import Sources

MOST_CANDIDATES = 64
MOST_HOARDS = 8
ALIKE = 0.8
"""Share of the heaviest hoard's bytes from which another one reaches the same tensors."""


def find_hoards(census: Census, stack: Stack) -> tuple[KeptTensors, ...]:
    """Variables and attributes of the user's running code that hold many tensors, the heaviest first.

    Of several that reach the same graphs, the one comes first that takes its last value into the next; then the
    outermost, for what is piled up over batches lies in the loop, not in what it calls.
    """
    candidates: list[tuple[list[Variable], list[torch.Tensor]]] = []
    seen: dict[int, list[Variable]] = {}
    for variable in variables_of(stack):
        if (names := seen.get(id(variable.value))) is not None:
            names.append(variable)
            continue
        seen[id(variable.value)] = names = [variable]
        tensors = [tensor for tensor in _tensors_of(variable.value) if census.key_of(tensor) is not None]
        if len(tensors) >= 3 or any(tensor.grad_fn is not None for tensor in tensors):
            candidates.append((names, tensors))
    candidates.sort(key=lambda each: -len(each[1]))
    # What a loop inside a model's forward hands on ends with the forward.
    feedback = Feedback({frame.f_code for frame in stack.frames[: stack.outside]})
    found = [_hoard(census, *each, feedback) for each in reversed(candidates[:MOST_CANDIDATES])]
    hoards = sorted((each for each in found if each[0].bytes), key=lambda each: -each[0].bytes)
    if not hoards:
        return ()
    most = hoards[0][0].bytes
    hoards.sort(key=lambda each: not (each[0].feeds and each[0].bytes >= ALIKE * most))
    sources = Sources()
    return tuple(_where_it_fills(*each, sources) for each in hoards[:MOST_HOARDS])


def _where_it_fills(hoard: KeptTensors, variable: Variable, sources: Sources) -> KeptTensors:
    """With the line that adds to it, where that is in another function than the one that runs."""
    if hoard.feeds is not None or hoard.filling or (found := filling_statement(variable, sources)) is None:
        return hoard
    return replace(hoard, place=replace(hoard.place, file=found.file, line=found.line, function=found.function))


def _hoard(
    census: Census, names: list[Variable], tensors: list[torch.Tensor], feedback: Feedback
) -> tuple[KeptTensors, Variable]:
    """What a variable holds, and the one of its names that tells most."""
    variable = names[0]
    keys = census.reach(tensors)
    own = {key for tensor in tensors if (key := census.key_of(tensor)) is not None}
    total = sum(keys.values())
    direct = sum(size for key, size in keys.items() if key in own)
    graph = total > 2 * direct
    feeds: str | None = None
    line: int | None = None
    for name in names if graph and len(tensors) == 1 else ():  # what a function is given, its caller may carry
        feeds, line = feedback.of(name)
        if feeds is not None:
            variable = name
            break
    filling = feedback.filled_at(variable)
    place = replace(variable.place, holder=variable.name, line=line or filling or variable.place.line)
    most = variable.value.maxlen if issubclass(type(variable.value), deque) else None  # type: ignore[attr-defined]
    attached = any(tensor.grad_fn is not None for tensor in tensors)
    hoard = KeptTensors(
        place=place,
        tensors=len(tensors),
        bytes=total,
        graph=graph,
        attached=attached,
        feeds=feeds,
        most=most,
        reset=next((name.reset for name in reversed(names) if name.reset), None),
        filling=filling is not None,
    )
    return hoard, variable


def find_exceptions(census: Census, stack: Stack) -> tuple[HeldException, ...]:
    """Exceptions whose finished frames hold tensors that nothing running holds, the heaviest first."""
    needed: dict[int, int] | None = None
    found = []
    for error in census.exceptions:
        tensors, names, place = _held_by(census, stack, error)
        if not tensors:
            continue
        if needed is None:
            needed = census.reach(_in_use(stack))
        exclusive = sum(size for key, size in census.reach(tensors).items() if key not in needed)
        if exclusive:
            handling = id(error) in stack.handled
            holder = NOWHERE if handling else _holder(census, stack, error)
            found.append(
                HeldException(
                    exception=type(error).__name__,
                    handling=handling,
                    names=names,
                    bytes=exclusive,
                    place=holder if holder.holder else place,
                )
            )
        tensors.clear()
    return tuple(sorted(found, key=lambda each: -each.bytes)[:4])


def _held_by(census: Census, stack: Stack, error: BaseException) -> tuple[list[torch.Tensor], tuple[str, ...], Place]:
    """What the finished frames of an exception hold: tensors, the user's variables (heaviest first), innermost line."""
    names: list[tuple[int, str]] = []
    tensors: list[torch.Tensor] = []
    place = NOWHERE
    for frame, line in failed_frames(error, stack.running):
        users = is_user_frame(frame)
        for name, value in read_locals(frame).items():
            held = list(tensors_in(value, 2))
            own = sum(census.reach(held).values()) if held else 0
            if own:
                tensors += held
                if users:
                    names.append((own, f"`{name}` of {frame.f_code.co_name}()"))
                    place = Place(file=frame.f_code.co_filename, line=line, function=frame.f_code.co_name)
    names.sort(reverse=True)
    return tensors, tuple(dict.fromkeys(name for _, name in names)), place


def _holder(census: Census, stack: Stack, error: BaseException) -> Place:
    """The variable that holds an error, or one that was raised from it."""
    for each in (error, *(other for other in census.exceptions if error in (other.__cause__, other.__context__))):
        place = holder_of(each, stack)
        if place.holder:
            return place
    return NOWHERE


def _tensors_of(value: Any) -> list[torch.Tensor]:
    if is_tensor(value):
        return [value]
    found: list[torch.Tensor] = []
    for item in items_of(value):
        found += tensors_in(vars(item) if is_user_class(type(item)) and hasattr(item, "__dict__") else item, 2)
    return found


def _in_use(stack: Stack) -> Iterator[torch.Tensor]:
    for frame in stack.frames:
        for value in read_locals(frame).values():
            yield from tensors_in(value, 2)


def claim_locals(census: Census, stack: Stack) -> tuple[TopLine, ...]:
    """Local variables of the failing code; returns the user's frames and what their own variables hold.

    What a loop outside of all models has put into a list, round by round, is no temporary but kept. A storage counts
    for the innermost frame that has it.
    """
    lines, counted, feedback = [], set[int](), Feedback(set())
    for index, frame in enumerate(stack.frames):
        own: dict[int, int] = {}
        place = place_of(frame)
        ours = str(frame.f_globals.get("__name__")).partition(".")[0] == "memguard"
        for name, value in read_locals(frame).items():
            piled = index >= stack.outside and _is_piled(Variable(name, value, place, frame.f_code), frame, feedback)
            for tensor in _each_in(value) if piled else tensors_in(value, 2):
                key = census.key_of(tensor)
                if key is None:
                    continue
                owner = "outputs" if piled or key in census.tables else "temporaries"
                nbytes = census.claim(tensor, owner, "a temporary" if ours else f"`{name}` in {frame.f_code.co_name}()")
                if nbytes or census.owner[key] in ("activations", "temporaries"):
                    own[key] = census.size[key]
        if own and is_user_frame(frame):
            total = sum(size for key, size in own.items() if key not in counted)
            counted.update(own)
            lines.append(TopLine(file=place.file, line=place.line, function=place.function, bytes=total))
    return tuple(sorted((line for line in lines if line.bytes), key=lambda line: -line.bytes)[:TOP])


def _is_piled(variable: Variable, frame: FrameType, feedback: Feedback) -> bool:
    if container_of(type(variable.value)) is None or not is_user_frame(frame):
        return False
    return next(_each_in(variable.value), None) is not None and feedback.filled_at(variable) is not None


def _each_in(value: object) -> Iterator[torch.Tensor]:
    """The tensors of a container, of more than one look into a variable takes."""
    for item in items_of(value):
        yield from tensors_in(item, 2)
