"""Copies of a model's weights: deep copies, kept state dicts, averages."""

from __future__ import annotations

import functools
import math
import re
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, final

import torch

from memguard.evidence.kept.incremental_scan import MIN_MERGED
from memguard.evidence.naming.holders import HolderSearch
from memguard.evidence.naming.names import capacity_of, outgrew
from memguard.heap.attributes import attributes_of, is_stored
from memguard.heap.containers import container_of, is_named, length_of, modules_in, tensors_in
from memguard.heap.roots import submodules_of
from memguard.heap.walk import Link
from memguard.records.facts import CheckpointKept, Fact, ModelCopies, Place
from memguard.records.stats import Stage
from memguard.source.bounds import has_limit
from memguard.source.origins import is_on_host, loaded_by
from memguard.source.stores import ends_with_a_call, is_updated_from_itself, own_text
from memguard.torch_objects.module_parts import gradients_of
from memguard.torch_objects.storages import is_sharded, storages_of

MIN_SHARE = 0.9
"""Share of the model's parameters, by count, that a copy must match in shape."""
MIN_LOADED_SHARE = 0.5
"""The same of what ``torch.load`` gave: a backbone's weights, or those of a model with another head."""
MAX_TENSORS = 20_000
MAX_PARTS = 16
MIN_WRITES = 3
"""Times that each tensor of a copy must have been written to, to be an average that goes on."""
_STORES = re.compile(r"^\s*[\w.]+\[[^:\]]*\]\s*=[^=]")
"""Into a place of a list that is there."""
_COPIES = re.compile(r"\b(clone|copy|deepcopy|state_dict)\(")
_COMPUTES = re.compile(r"grad\b|_like\(|[-+*/@]")
"""In the statement that makes them: what copies weights, and what makes something else of them."""
_QUOTED = re.compile(r"(['\"]).*?\1")
_Shapes = Counter[tuple[tuple[int, ...], torch.device]]
_AVERAGES = ("ema", "swa", "average", "teacher", "momentum", "target", "polyak")


@final
@dataclass(frozen=True, slots=True)
class Copy:
    """A module or a dict whose tensors have the shapes of a model's parameters, in storages of their own."""

    place: Place
    bytes: int
    averaged: bool
    """Whether its name says that it is wanted: an average of weights, a teacher, a target network. Without graphs."""
    written: bool = False
    """Whether it goes on changing, as an average does."""
    trained: bool = False
    """Whether it is a model with gradients of its own: beside the watched one, and no copy of it."""
    alike: bool = False
    """Whether nothing shows that these tensors, of the weights' shapes, were ever weights."""
    limited: bool = False
    """Whether it is one of those in a container that has a limit, or places that are taken in turn."""
    gathered: bool = False
    """Whether its tensors are whole, and the model's weights are sharded: they were gathered from all ranks."""


def find_copies(
    survey: HolderSearch, models: Iterable[torch.nn.Module], *, ignore: Collection[int] = ()
) -> tuple[Copy, ...]:
    """Copies of watched models on the models' own devices, the heaviest first.

    Args:
        survey: A walk over the live objects.
        models: The watched models.
        ignore: Keys of storages that have an owner of their own: gradients, optimizer state.
    """
    found: list[Copy] = []
    roots = list(models)
    watched: set[int] = set()
    for model in roots:
        list(submodules_of(model, watched))
    own = {*ignore, *storages_of(tensor for model in roots for tensor in _of_module(model))}
    wanted = [(Counter(_signature(tensor) for tensor in _of_module(model)), model) for model in roots]
    taken: set[int] = set()
    called = {id(model) for model in roots}

    @functools.cache  # for the few that are asked about: to name each takes milliseconds
    def beside() -> set[tuple[object, ...]]:
        return {_name_of(survey.cause(link)) for link in survey.snapshot.links if id(link.value) in called}

    for link in survey.snapshot.links:
        tensors = _tensors_of(link.value, watched)
        if not tensors:
            continue
        storages = storages_of(tensors)
        fresh = {key: size for key, size in storages.items() if key not in own and key not in taken}
        shapes = Counter(_signature(tensor) for tensor in tensors)
        alone = len(fresh) * len(tensors) / max(len(storages), 1)
        for shapes_of_model, model in wanted:
            share = _share_of(shapes_of_model, shapes, alone, is_named=is_named(link.value))
            if share >= MIN_LOADED_SHARE:
                place = survey.cause(link)
                if issubclass(type(link.value), torch.nn.Module) and _name_of(place) in beside():
                    break  # its turn comes: another member of an ensemble, or of a population
                if not (is_loaded(place) or _is_average(link, place)) and issubclass(type(link.value), dict):
                    place = loaded_by(place) or place
                if share < (MIN_LOADED_SHARE if is_loaded(place) else MIN_SHARE):
                    continue
                if is_loaded(place):  # with what else it holds: the optimizer's state
                    device = tensors[0].device
                    inside = tensors_in(_outermost(link), most=MAX_TENSORS)
                    whole = storages_of(tensor for tensor in inside if tensor.device == device)
                    fresh.update((key, size) for key, size in whole.items() if key not in own and key not in taken)
                taken.update(fresh)
                is_module = issubclass(type(link.value), torch.nn.Module)
                source = _own_source(place)
                gathered = any(map(is_sharded, _of_module(model))) and not any(map(is_sharded, tensors))
                copies = is_module or gathered or (_COPIES.search(source) and not _COMPUTES.search(source))
                found.append(
                    Copy(
                        place,
                        sum(fresh.values()),
                        averaged=_is_average(link, place) and not any(tensor.grad_fn is not None for tensor in tensors),
                        written=_is_written(tensors, place),
                        trained=is_module and bool(gradients_of(tensors)),
                        alike=not copies,
                        limited=_is_limited(link, place),
                        gathered=gathered,
                    )
                )
                break
    return tuple(sorted((_alone(copy, found) for copy in found), key=lambda copy: -copy.bytes))


def copied_bytes(value: object, models: Iterable[torch.nn.Module], trained: Collection[int]) -> int:
    """Bytes of the weights that something brings, if they are a copy of a model's that is trained; else 0.

    A copy is not trained itself, nor was it: a member of an ensemble that was has changed since it was made.

    Args:
        value: What a container grew by: a module, or what has one.
        models: The watched models; a copy that is called is one of them.
        trained: Keys of storages that optimizers step on.
    """
    module = next(modules_in(value, 2, MAX_PARTS), None)
    tensors = list(_of_module(module)) if module is not None else []
    storages = storages_of(tensors)
    if not storages or not storages.keys().isdisjoint(trained) or all(_writes(one) >= MIN_WRITES for one in tensors):
        return 0
    shapes = Counter(_signature(tensor) for tensor in tensors)
    for model in models:
        own = list(_of_module(model))
        if not storages_of(own).keys().isdisjoint(trained):
            common = shapes & Counter(_signature(tensor) for tensor in own)
            if sum(common.values()) >= MIN_SHARE * max(len(own), len(tensors)):
                return sum(storages.values())
    return 0


def _name_of(place: Place) -> tuple[object, ...]:
    """The name under which something lies, whatever its key there."""
    return place.file, place.line, (place.holder or "").partition("[")[0]


def _alone(copy: Copy, found: Sequence[Copy]) -> Copy:
    """A copy; no average where only its owner's name says so, and another of that owner's plainly is the average.

    One that averages weights may keep those of before, too, to put them back.
    """
    owner = _owner(copy)
    if not copy.averaged or copy.written or not owner or _says_average(_without_owner(copy.place)):
        return copy
    others = (other for other in found if other is not copy and _owner(other) == owner)
    is_other = any(other.written or _says_average(_without_owner(other.place)) for other in others)
    return replace(copy, averaged=False) if is_other else copy


def is_loaded(place: Place) -> bool:
    """Whether the statement at a place loads a checkpoint."""
    return "load(" in _own_source(place)


def is_mapped_to_host(place: Place) -> bool:
    """Whether it loads one into the host's memory, as it says itself."""
    return re.search(r"""map_location\s*=\s*(torch\.device\()?["']cpu["']""", _own_source(place)) is not None


def _own_source(place: Place) -> str:
    """Of several statements on a line the one that sets the holder; the whole line where none does."""
    return own_text(place.source, (place.holder or "").rpartition(".")[2])


def _outermost(link: Link) -> Any:
    """What it lies in, as far as dicts go."""
    while link.parent is not None and type(link.parent.value) is dict:
        link = link.parent
    return link.value


def _is_limited(link: Link, place: Place) -> bool:
    """Whether the container that it lies in takes no more than so many."""
    around: list[Link] = []
    outer = link.parent
    while outer is not None and container_of(type(outer.value)) is not None:
        around.append(outer)  # each in a record with its score, in a list, say
        outer = outer.parent
    if not around:
        return False
    if _STORES.search(place.source or "") and any(issubclass(type(outer.value), list) for outer in around):
        return True
    longest = max(around, key=lambda outer: length_of(outer.value))
    capacity = capacity_of(longest, place.file, place.holder)
    if issubclass(type(longest.value), deque) and capacity is not None:
        return True
    return not outgrew(length_of(longest.value), capacity) and has_limit(place.file, place.holder)


def _share_of(model: _Shapes, shapes: _Shapes, alone: float, *, is_named: bool) -> float:
    """Share of a model's parameters that some tensors match in shape: by count or, of named ones, by elements."""
    common, count = model & shapes, sum(model.values())
    matched = sum(common.values())
    share = min(matched, alone) / count if count else 0.0
    if is_named and matched >= MIN_MERGED and alone >= MIN_SHARE * matched:
        share = max(share, _elements(common) / max(_elements(model), 1))
    return share


def _elements(shapes: _Shapes) -> int:
    return sum(math.prod(shape) * count for (shape, _), count in shapes.items())


def _signature(tensor: torch.Tensor) -> tuple[tuple[int, ...], torch.device]:
    return tuple(tensor.shape), tensor.device


def _of_module(module: object) -> Iterator[torch.Tensor]:
    for part in submodules_of(module, set()):
        parameters = attributes_of(part).get("_parameters")
        for tensor in list(dict.values(parameters)) if isinstance(parameters, dict) else ():
            if is_stored(tensor):
                yield tensor


def _tensors_of(obj: Any, watched: set[int]) -> list[torch.Tensor]:
    """The parameters of a module that is not watched, or the tensors of a dict like a state dict."""
    if issubclass(type(obj), torch.nn.Module):
        return [] if id(obj) in watched else list(_of_module(obj))
    if issubclass(type(obj), (dict, list)):
        values = list(dict.values(obj) if issubclass(type(obj), dict) else list.__iter__(obj))[:MAX_TENSORS]
        return [value for value in values if is_stored(value)]
    return []


def _is_average(link: Link, place: Place) -> bool:
    return _says_average(f"{place.holder} {type(link.value).__name__} {place.source}")


def _says_average(words: str) -> bool:
    words = words.lower()
    return any(word in words for word in _AVERAGES)


def _owner(copy: Copy) -> str:
    """The class whose attribute it is."""
    return (copy.place.holder or "").rpartition(".")[0]


def _without_owner(place: Place) -> str:
    return f"{(place.holder or '').rpartition('.')[2]} {place.source}"


def _is_written(tensors: Iterable[torch.Tensor], place: Place) -> bool:
    """Whether all of it was written to again and again, or is made anew from what it was."""
    if is_updated_from_itself(place.source, (place.holder or "").rpartition(".")[2]):
        return True
    return all(_writes(tensor) >= MIN_WRITES for tensor in tensors)


def _writes(tensor: torch.Tensor) -> int:
    try:
        return int(torch._C.TensorBase._version.__get__(tensor))  # type: ignore[attr-defined]
    except RuntimeError:
        return 0  # an inference tensor does not count them


MOST_AVERAGES = 4
"""Averages under one name, of several decay rates; more are the weights of many epochs, whatever the name says."""


@final
class CopyGroups:
    """Tells of copies when there are more than were told of before."""

    def __init__(self) -> None:
        self._told = 0

    def facts(self, found: Iterable[Copy], frames: Iterable[FrameType], *, batch: int, stage: Stage) -> Iterator[Fact]:
        """The facts that copies come to, if there are more than ever."""
        # An optimizer that has not been seen to step yet owns its state all the same. What stands in quotes is a key of
        # a checkpoint that has the weights as well.
        words = {copy: f"{copy.place.holder} {_QUOTED.sub('', copy.place.source or '')}".lower() for copy in found}
        copies = [c for c in found if c.bytes and "optim" not in words[c] and not is_on_host(c.place)]
        if len(copies) <= self._told:
            return
        self._told = len(copies)
        frames = list(frames)
        loaded = [copy for copy in copies if is_loaded(copy.place)]
        for copy in loaded:
            if not is_mapped_to_host(copy.place):
                yield CheckpointKept(batch=batch, stage=stage, place=copy.place, bytes=copy.bytes)
        held = Counter(copy.place.where for copy in copies)
        averaged = [copy for copy in copies if copy not in loaded and copy.averaged]
        averaged = [copy for copy in averaged if held[copy.place.where] <= MOST_AVERAGES]
        others = [copy for copy in copies if copy not in loaded and copy not in averaged]
        passing = [copy for copy in others if ends_with_a_call(copy.place, frames)]
        limited = [copy for copy in others if copy.limited and copy not in passing]
        lasting = [copy for copy in others if not copy.limited and copy not in passing]
        for group in (lasting, limited, passing, averaged):
            if not group:
                continue
            group.sort(key=lambda copy: -held[copy.place.where])  # stable: of equals the heaviest
            yield ModelCopies(
                batch=batch,
                stage=stage,
                place=group[0].place,
                copies=len(group),
                bytes=sum(copy.bytes for copy in group),
                holders=tuple(sorted({copy.place.holder for copy in group if copy.place.holder})),
                averaged=group is averaged,
                passing=group is passing,
                limited=group is limited,
                trained=all(copy.trained for copy in group),
                alike=group is not averaged and any(copy.alike for copy in group),
                gathered=all(copy.gathered for copy in group),
                changing=all(copy.written for copy in group),
            )
