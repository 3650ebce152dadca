"""What holds memory after an out-of-memory error: growing variables, locals, kept exceptions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from types import FrameType

import torch

from memguard.evidence.naming.groups import Group, grouped
from memguard.evidence.naming.holders import HolderSearch
from memguard.evidence.naming.names import NAMES, capacity_of, growing, text_of
from memguard.evidence.oom.census import TOP, Census
from memguard.evidence.oom.stack import Stack
from memguard.heap.children import Scope, Via
from memguard.heap.containers import all_of, container_of, tensors_in
from memguard.heap.frames import failed_frames, is_module_level, is_user_frame, place_of, read_locals
from memguard.heap.snapshot import is_below_failure, unsampled_tensors
from memguard.heap.walk import Link
from memguard.postmortem.scene import HeldException, KeptTensors, TopLine
from memguard.records.facts import NOWHERE, Place
from memguard.source.model import SourceModel
from memguard.source.scopes import Scope as SourceScope
from memguard.source.stores import feedback_of, filled_at

MOST_CANDIDATES = 64
MOST_HOARDS = 8
MOST_TENSORS = 32_768
"""In long containers, besides those that the walk met."""
ALIKE = 0.8
"""Share of the heaviest hoard's bytes from which another one reaches the same tensors."""


def find_hoards(census: Census, stack: Stack, search: HolderSearch) -> tuple[KeptTensors, ...]:
    """Names in reach of the user's running code that hold many tensors, the heaviest first.

    Of several that reach the same graphs, the one comes first that takes its last value into the next; then the
    outermost, for what is piled up over batches lies in the loop, not in what it calls.
    """
    met = [leaf for leaf in search.snapshot.tensors if not is_below_failure(leaf)]
    leaves = (*met, *islice(unsampled_tensors(met, inside=True), MOST_TENSORS))
    groups = grouped((leaf, 0) for leaf in leaves if census.may_be_kept(leaf.value))
    named = sorted((group for group in groups if group.link.via in NAMES), key=lambda group: -len(group.leaves))
    candidates = [g for g in named if len(g.leaves) >= 3 or any(leaf.value.grad_fn is not None for leaf in g.leaves)]
    found = [(_hoard(census, stack, group), group) for group in reversed(candidates[:MOST_CANDIDATES])]
    hoards = sorted((each for each in found if each[0].bytes), key=lambda each: -each[0].bytes)
    most = hoards[0][0].bytes if hoards else 0
    hoards.sort(key=lambda each: not (each[0].feeds and each[0].bytes >= ALIKE * most))
    return tuple(_placed(*each, search) for each in hoards[:MOST_HOARDS])


def _hoard(census: Census, stack: Stack, group: Group) -> KeptTensors:
    """What a name holds, and where the program stands in the loop that makes it hold more."""
    tensors = [leaf.value for leaf in group.leaves]
    keys = census.reach(tensors)
    own = {census.key_of(tensor) for tensor in tensors}
    total = sum(keys.values())
    graph = total > 2 * sum(size for key, size in keys.items() if key in own)
    name, frame = str(group.link.key), _frame_of(group.link, stack)
    feeds: str | None = None
    line: int | None = None
    filled: int | None = None
    if frame is not None and (scope := _scope_of(frame)) is not None:
        filled = filled_at(SourceModel.of(frame.f_code.co_filename), scope, name, frame.f_lineno)
        # What a loop inside a model's forward hands on ends with the forward.
        if graph and len(tensors) == 1 and frame not in stack.frames[: stack.outside]:
            feeds, line = feedback_of(scope, name)
    return KeptTensors(
        place=replace(place_of(frame), line=line or filled, holder=name) if frame and (line or filled) else NOWHERE,
        tensors=len(tensors),
        bytes=total,
        graph=graph,
        attached=any(tensor.grad_fn is not None for tensor in tensors),
        feeds=feeds,
        filling=filled is not None,
    )


def _placed(hoard: KeptTensors, group: Group, search: HolderSearch) -> KeptTensors:
    """With the line that fills it, where that is another one, and what ends its growth."""
    place = hoard.place if hoard.place.holder else search.by_holder([(group.leaves[-1], 0)])[0][0].place
    most = capacity_of(growing(group.leaves[-1]), place.file, place.holder)
    return replace(hoard, place=place, most=most, reset=_reset_of(group.link, search))


def _frame_of(name: Link, stack: Stack) -> FrameType | None:
    """The running frame that has a variable."""
    scope = name.parent.value if name.parent is not None else None
    if type(scope) is not Scope:
        return None
    for frame in stack.frames:
        code = frame.f_code
        first = 0 if is_module_level(code) else code.co_firstlineno
        if (code.co_filename, first) == (scope.file, scope.first_line):
            return frame
    return None


def _reset_of(name: Link, search: HolderSearch) -> str | None:
    """The object that has an attribute, where that has a method ``reset``: a metric."""
    owner = name.parent if name.via is Via.ATTRIBUTE else None
    if owner is None or not callable(getattr(type(owner.value), "reset", None)):
        return None
    names = (each for each in (owner, *search.snapshot.others(owner)) if each.via in NAMES and each.key != "self")
    return next(map(text_of, names), type(owner.value).__name__)


def _scope_of(frame: FrameType) -> SourceScope | None:
    code = frame.f_code
    return SourceModel.of(code.co_filename).scope_of(code.co_firstlineno, code.co_name)


def place_holding(thing: object, search: HolderSearch) -> Place:
    """The name that holds an object, and the statement that puts it there; nowhere without one."""
    for link in search.snapshot.links:
        if link.value is thing and link.via not in (Via.PART, Via.ROOT):
            return search.cause(link)
    return NOWHERE


def find_exceptions(census: Census, stack: Stack, search: HolderSearch) -> tuple[HeldException, ...]:
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
            holder = NOWHERE if handling else _holder(census, search, error)
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


def _holder(census: Census, search: HolderSearch, error: BaseException) -> Place:
    """The variable that holds an error, or one that was raised from it."""
    for each in (error, *(other for other in census.exceptions if error in (other.__cause__, other.__context__))):
        place = place_holding(each, search)
        if place.holder:
            return place
    return NOWHERE


def _in_use(stack: Stack) -> Iterator[torch.Tensor]:
    for frame in stack.frames:
        for value in read_locals(frame).values():
            yield from tensors_in(value, 2)


def claim_locals(census: Census, stack: Stack) -> tuple[TopLine, ...]:
    """Local variables of the failing code; returns the user's frames and what their own variables hold.

    What a loop outside of all models has put into a list, round by round, is no temporary but kept. A storage counts
    for the innermost frame that has it.
    """
    lines, counted = [], set[int]()
    for index, frame in enumerate(stack.frames):
        own: dict[int, int] = {}
        place = place_of(frame)
        ours = str(frame.f_globals.get("__name__")).partition(".")[0] == "memguard"
        for name, value in read_locals(frame).items():
            piled = index >= stack.outside and _is_piled(name, value, frame)
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


def _is_piled(name: str, value: object, frame: FrameType) -> bool:
    if container_of(type(value)) is None or not is_user_frame(frame) or next(_each_in(value), None) is None:
        return False
    model, scope = SourceModel.of(frame.f_code.co_filename), _scope_of(frame)
    return scope is not None and filled_at(model, scope, name, frame.f_lineno) is not None


def _each_in(value: object) -> Iterator[torch.Tensor]:
    """The tensors of a container, of more than one look into a variable takes."""
    for item in all_of(value):
        yield from tensors_in(item, 2)
