"""What each name keeps in all: every storage below it, each once, with parameters, gradients and what graphs saved.

So the size of each reported holder is measured again as the run goes on, and as it ends.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, TypeAlias, final

import torch
from torch import nn

from memguard.autograd.graph import graph_of, leaf_storages, saved_tensors
from memguard.evidence.interface import ProbeContext
from memguard.evidence.naming.names import NAMES, innermost, place_of
from memguard.evidence.owners import state_of
from memguard.heap.attributes import attributes_of
from memguard.heap.children import LRU_CACHE, Scope, Via
from memguard.heap.containers import FULL, all_of, container_of, elements_of, length_of, modules_in, unwrapped
from memguard.heap.snapshot import DEPTH, HeapSnapshot, long_containers, unsampled_tensors
from memguard.heap.walk import Link
from memguard.records.facts import ExceptionHolds, Fact, KeptOutputs, ModelCopies, RetainedGraphs, ViewsPinStorage
from memguard.records.facts.storages import OF_BATCHES
from memguard.records.stats import Stage
from memguard.thresholds import EXPLAINED, NEARLY
from memguard.torch_objects.module_parts import buffers_of, gradients_of, parameters_of
from memguard.torch_objects.storages import storages_of

MOST_TENSORS: Final = 32_768
"""Tensors of long containers that are read besides those that the walk met."""
MOST_NODES: Final = 32_768
"""Nodes of graphs, each visited once."""

Name: TypeAlias = "tuple[str | None, str | None, str | None]"
"""File, function and name: one for all objects whose attribute goes by it, the same in every look."""

WEIGHTS_SHARE: Final = 0.25
"""Of what a name keeps, from which on it keeps models: Adam's state is as large as weights and gradients together."""


@final
@dataclass(slots=True)
class Kept:
    """What lies below one name. Holds the link: drop it at once."""

    link: Link
    """Leads to the longest container, or cache, of that name; else to the first object."""
    depth: int
    length: int
    """Of the longest container; the answers of a cache; 0 of what is neither."""
    elements: int
    """Of all of them."""
    is_part: bool
    """Whether it is a part of a module."""
    is_optimized: bool
    """Whether it is an optimizer or lies in one: parameters that are added there are trained."""
    storages: dict[int, int] = field(default_factory=dict)
    objects: set[int] = field(default_factory=set)
    """Identities of what goes by it: a model in an attribute of each of several objects."""
    graphs: int = 0
    """Graphs that end below it."""
    is_whole: bool = True
    """Whether all graphs below it were gone through: they may have too many nodes."""
    weights: set[int] = field(default_factory=set)
    """Those of them that are parameters, or their gradients; not what an optimizer alone leads to."""
    states: set[int] = field(default_factory=set)
    """What an optimizer leads to."""
    gradients: set[int] = field(default_factory=set)
    """Those of them that are gradients."""
    above: set[Name] = field(default_factory=set)
    """Names that lead to it."""

    def bytes(self, without: Container[int] = ()) -> int:
        """Bytes of the storages, without some."""
        return sum(size for key, size in self.storages.items() if key not in without)

    @property
    def are_models(self) -> bool:
        """Whether they are models."""
        nbytes = self.bytes()
        return nbytes - self.bytes(self.weights) >= WEIGHTS_SHARE * nbytes

    @property
    def what(self) -> str:
        """They in words: elements, or what several objects have under one name."""
        if self.length:
            return "{count} elements"
        return "tensors of {count} objects" if len(self.objects) > 1 else "tensors"

    @property
    def capacity(self) -> int | None:
        """How many answers a cache of a function may hold; None of what is none, or has no limit."""
        if type(self.link.value) is not LRU_CACHE:
            return None
        maxsize = self.link.value.cache_parameters()["maxsize"]
        return maxsize if type(maxsize) is int else None


def kept_by_name(snapshot: HeapSnapshot, *, whole: bool = False) -> dict[Name, Kept]:
    """All names that a look met, with what lies below them.

    Args:
        snapshot: The look.
        whole: Whether to read all models of long containers, of which the walk met a sample.
    """
    graphs = _Graphs()
    found: dict[Name, Kept] = {}
    lengths: dict[int, int] = {}
    numbers: dict[Name, set[int]] = {}
    holders: dict[int, list[set[Name]]] = {}
    """The names above each tensor of a storage: one that graphs saved may be kept anyway, as a list of batches does."""
    for link, tensors in _tensors_by_link(snapshot, whole):
        trail = link.trail()
        is_state = any(issubclass(type(step.value), torch.optim.Optimizer) for step in trail)
        weights = [] if is_state else [tensor for tensor in tensors if issubclass(type(tensor), nn.Parameter)]
        gradients = storages_of(_gradients(tensors))
        of_weights = storages_of([*weights, *_gradients(weights)])
        storages = storages_of(tensors) | gradients
        ends = {graph_of(tensor) for tensor in tensors} - {None}
        below = {number for end in ends if (number := graphs.number_of(end)) is not None}
        above: set[Name] = set()
        for step in trail:
            if step.via not in NAMES or type(step.value) is Scope:
                continue
            name, kept = _kept(step, found, lengths)
            kept.above |= above
            above.add(name)
            kept.storages.update(storages)
            kept.weights.update(of_weights)
            kept.states.update(storages if is_state else ())
            kept.gradients.update(gradients)
            if ends:
                numbers.setdefault(name, set()).update(below)
                kept.is_whole = kept.is_whole and not graphs.is_spent
        for key in storages:
            holders.setdefault(key, []).append(above)
    for name, own in numbers.items():
        found[name].graphs = len(own)
        saved = graphs.storages_of(own)
        found[name].storages |= {k: saved[k] for k in saved if all(name in above for above in holders.get(k, ()))}
    return found


def kept_around(snapshot: HeapSnapshot, number: int | None) -> Kept | None:
    """What lies below the name of one container that a look met, told by its identity."""
    link = next((link for link in snapshot.links if id(link.value) == number), None)
    name = innermost(link) if link is not None else None
    return kept_by_name(snapshot).get(name_of(name)) if name is not None and name.via in NAMES else None


def name_of(step: Link) -> Name:
    """The name of a step that has one."""
    place = place_of(step)
    return place.file, place.function, place.holder


def _tensors_by_link(snapshot: HeapSnapshot, whole: bool) -> Iterable[tuple[Link, list[torch.Tensor]]]:
    """Tensors, by the last link on the way to them that has a name or holds several: a list, a module, a variable."""
    found: dict[int, tuple[Link, list[torch.Tensor]]] = {}
    for leaf in (*snapshot.tensors, *islice(unsampled_tensors(snapshot.tensors), MOST_TENSORS)):
        link = leaf if leaf.via in NAMES or leaf.parent is None else leaf.parent
        found.setdefault(id(link), (link, []))[1].append(leaf.value)
    modules = [link for link in snapshot.links if issubclass(type(link.value), nn.Module)]
    for container in long_containers(modules) if whole else ():
        models = (model for element in all_of(container.value) for model in modules_in(element, DEPTH))
        weights = (tensor for model in models for tensor in (*parameters_of(model), *buffers_of(model)))
        found.setdefault(id(container), (container, []))[1].extend(islice(weights, MOST_TENSORS))
    for link in snapshot.links:
        if issubclass(type(link.value), nn.Module):
            parameters = attributes_of(link.value).get("_parameters")
            values = list(dict.values(parameters)) if issubclass(type(parameters), dict) else []  # type: ignore[arg-type]
            tensors = [value for value in values if issubclass(type(value), torch.Tensor)]
            found.setdefault(id(link), (link, []))[1].extend(tensors)
        elif issubclass(type(link.value), torch.optim.Optimizer):  # in a record of a trial, its states lie too deep
            found.setdefault(id(link), (link, []))[1].extend(state_of(link.value))
    return found.values()


def _gradients(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return gradients_of(tensor for tensor in tensors if type(tensor) in (torch.Tensor, nn.Parameter))


def _kept(step: Link, found: dict[Name, Kept], lengths: dict[int, int]) -> tuple[Name, Kept]:
    """The name of a step, and its entry; each object is counted once, though many tensors lie below it."""
    name, number = name_of(step), id(step.value)
    length = lengths.get(number)
    if length is None:
        length = lengths[number] = _length_below(step.value)
    kept = found.get(name)
    if kept is None:
        above = step.trail()[:-1]
        inside = False
        for link in above:  # a module leads to its hooks by a part without a name, and what these keep is no part of it
            inside = (inside and link.via is not Via.PART) or issubclass(type(link.value), nn.Module)
        optimized = any(issubclass(type(link.value), torch.optim.Optimizer) for link in (*above, step))
        kept = found[name] = Kept(step, len(above), length, 0, inside, optimized)
    elif length > kept.length:
        kept.link, kept.length = step, length
    if number not in kept.objects:
        kept.objects.add(number)
        kept.elements += length
    return name, kept


def _length_below(value: Any, depth: int = DEPTH) -> int:
    """Elements of a container, or answers of a cache; of a few lists that are longer than so few, those of all."""
    if type(value) is LRU_CACHE:
        return int(value.cache_info().currsize)
    length = length_of(value) if container_of(type(value)) is not None else 0
    if 0 < length <= FULL and depth > 0:
        inner = [_length_below(element, depth - 1) for element in elements_of(unwrapped(value))]
        if max(inner, default=0) > length:
            return sum(inner)
    return length


@final
class _Graphs:
    """What graphs saved, each node read once: a graph is the nodes that nobody had met before, and those above them."""

    def __init__(self) -> None:
        self._number: dict[Any, int] = {}
        self._own: list[dict[int, int]] = []
        self._above: list[set[int]] = []
        self._left = MOST_NODES

    @property
    def is_spent(self) -> bool:
        """Whether there are more nodes than are gone through."""
        return self._left <= 0

    def number_of(self, start: Any) -> int | None:
        """The graph that ends in a node, as far as there are nodes left to go through; None without one."""
        if start is None or start in self._number:
            return None if start is None else self._number[start]
        number, own, above = len(self._own), {}, set()
        self._number[start] = number
        level = [start]
        while level and self._left > 0:
            node = level.pop()
            self._left -= 1
            own.update(storages_of(saved_tensors(node)))
            own.update(leaf_storages(node))
            for upstream, _ in node.next_functions:
                if upstream is None:
                    continue
                known = self._number.get(upstream)
                if known is None:
                    self._number[upstream] = number
                    level.append(upstream)
                elif known != number:
                    above.add(known)
        self._own.append(own)
        self._above.append(above)
        return number

    def storages_of(self, numbers: set[int]) -> Mapping[int, int]:
        """The storages of some graphs, and of those that they lead to."""
        found: dict[int, int] = {}
        seen, waiting = set(numbers), list(numbers)
        while waiting:
            number = waiting.pop()
            found.update(self._own[number])
            waiting += self._above[number] - seen
            seen |= self._above[number]
        return found


# What the holders of reported facts keep now

MEASURED: Final = (ExceptionHolds, KeptOutputs, ModelCopies, RetainedGraphs, ViewsPinStorage)
"""Facts whose bytes are those that lie below their holder's name."""


def beside_of(fact: Fact, name: Name, kept: Mapping[Name, Kept]) -> list[Name]:
    """Names that are filled beside the one that a fact tells of, and are counted with it."""
    others = fact.beside if isinstance(fact, KeptOutputs) else ()
    return [other for other in kept if other[2] in others and other[0] in (None, name[0])]


def _with_beside(fact: Fact, name: Name, kept: Mapping[Name, Kept]) -> Kept:
    """What a name keeps, with what is counted with it."""
    one = kept[name]
    for other in beside_of(fact, name, kept):
        more = kept[other]
        one = replace(one, storages=one.storages | more.storages, elements=one.elements + more.elements)
    return one


def _count(one: Kept, scaled: int) -> int:
    """How many a name keeps: elements, or objects that have it, where they are about so many; each may have several."""
    counted = next((n for n in (one.elements, len(one.objects)) if NEARLY * scaled <= n <= scaled / NEARLY), scaled)
    return max(counted, one.elements)


def measured_anew(
    fact: Any, name: Name | None, kept: Mapping[Name, Kept], owned: Container[int], watch: ProbeContext, *, at_end: bool
) -> Fact | None:
    """A fact with the bytes that its holder keeps now; None where it has nothing to add.

    Args:
        fact: What was reported.
        name: Its holder's; None if no look met it.
        kept: What lies below each name.
        owned: Storages of models and optimizers, which live anyway; models that are kept are such.
        watch: Knows the newest batch and its stage.
        at_end: Whether the run is over: then a smaller size is reported too, unless most of it was freed.
    """
    if name not in kept or name is None:
        return None
    one = _with_beside(fact, name, kept)
    if isinstance(fact, ModelCopies):
        owned = one.gradients  # copies are counted by their weights
    elif isinstance(fact, KeptOutputs) and (fact.weights or fact.measured):
        owned = ()  # as it was first measured
    if not isinstance(fact, MEASURED):
        return None
    nbytes, before, batch = one.bytes(owned), fact.kept_bytes, watch.batch
    if isinstance(fact, ModelCopies) and fact.copies <= len(fact.holders):
        return None  # one under each name: what lies beside it, an optimizer's state, is no further copy
    field = "pinned_bytes" if isinstance(fact, ViewsPinStorage) else "bytes"
    # What graphs keep was estimated from some of them, and may be less; far less is another object of that name.
    least = EXPLAINED * before if at_end or isinstance(fact, RetainedGraphs) else before + 1
    if nbytes < max(least, 1) or not one.is_whole:
        return None
    times = nbytes / before if before else 1.0
    changes: dict[str, Any] = {"batch": batch, field: nbytes, "final": at_end and not isinstance(fact, RetainedGraphs)}
    if isinstance(fact, RetainedGraphs):
        changes["measured"] = True
        if one.length and one.graphs and not fact.carried:  # else one graph may reach those of all batches
            graphs = min(one.graphs, one.elements)  # an element may have several, as of a value and a policy
            changes |= {"graphs": graphs, "counted": True, "followed": 0, "last_batch": batch, "final": at_end}
    elif isinstance(fact, KeptOutputs):
        count, scaled = one.elements or len(one.objects), round(times * fact.tensors)
        if fact.what == OF_BATCHES:  # of each there may be several elements
            count = min(count, round(nbytes / fact.bytes_per_batch)) if fact.bytes_per_batch else scaled
        changes["tensors"] = count if count >= fact.tensors else scaled
        changes["outlasts"] = one.length > 0 and fact.stage.evaluates and watch.stage is Stage.TRAIN
    elif isinstance(fact, ModelCopies):
        changes["copies"] = _count(one, round(times * fact.copies))
    elif isinstance(fact, ViewsPinStorage):
        changes |= {"views": round(times * fact.views), "used_bytes": round(times * fact.used_bytes)}
    return replace(fact, **changes)


def carried_on(fact: KeptOutputs, batch: int, risen_bytes: int) -> KeptOutputs:
    """A fact as of the end of the run, where its holder may have gone before that, as a variable does.

    Args:
        fact: As it was measured last.
        batch: The newest.
        risen_bytes: By how much the floor rose since: no more than that came.
    """
    if fact.final or not fact.bytes:
        return replace(fact, batch=batch)
    more = min(round(fact.bytes_per_batch * (batch - fact.batch)), max(risen_bytes, 0))
    tensors = fact.tensors + round(more / fact.bytes * fact.tensors)
    return replace(fact, batch=batch, bytes=fact.bytes + more, tensors=tensors)
