"""Containers that grew since an earlier look, by how much, and what their elements hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import nn

from memguard.autograd.graph import graph_of, saved_storages
from memguard.evidence.kept.copies import MAX_PARTS
from memguard.evidence.naming.holders import HolderSearch
from memguard.evidence.naming.names import NAMES, capacity_of, innermost
from memguard.heap.children import Via
from memguard.heap.containers import latest_of, length_of, modules_in, newest_of, sample_of, tensors_in
from memguard.heap.host_sizes import HostSize, host_size, is_from_worker
from memguard.heap.walk import Link
from memguard.records.facts import NOWHERE, Place
from memguard.torch_objects.storages import storages_of

MAX_GROWTHS = 8


@final
@dataclass(frozen=True, slots=True)
class ContainerGrowth:
    """A container that got longer, or heavier, between two counts."""

    place: Place
    elements: int
    """By how many it grew."""
    bytes: int
    newest_bytes: int = 0
    """What its newest element takes of the host's memory."""
    plain_bytes: int = 0
    """The same without tensors."""
    from_worker: bool = False
    """Whether that holds a tensor in shared memory: what a DataLoader's worker handed over."""
    shared: bool = False
    """Whether all its tensors do."""
    newest: tuple[int, ...] = ()
    """Storages of the tensors in its newest elements."""
    graphs: GraphsBelow | None = None
    """What the graphs hold, where a tensor in its newest elements carries one."""
    numbers: bool = False
    """Whether each of its tensors is one number, whatever the storage behind it takes."""
    on_cpu: bool = False
    """Whether all its tensors lie in host memory."""
    pinned: bool = False
    """Whether one of them is pinned."""
    weights: bool = False
    """Whether its tensors are parameters of models that are kept, as recurrent ones have them in a list once more."""
    is_module: bool = False
    """Whether its newest element is a module, or has one."""
    copy_bytes: int = 0
    """Of the weights in its newest element, where they are a copy of a model's, and are called: met as models."""
    length: int = 0
    """How many it has now."""
    number: int = 0
    """The container's identity; only good while it lives."""
    capacity: int | None = None
    """How many it can have, as far as its maxlen or the source tells."""
    alike: int = 1
    """Containers that grew which objects of the same class have under the same name, this one included."""


def find_growth(
    survey: HolderSearch,
    before: Mapping[int, int],
    *,
    elements: float = 1,
    host_bytes: int = 0,
    copied: Callable[[object], int] = lambda newest: 0,
    owned: Collection[int] = (),
) -> tuple[ContainerGrowth, ...]:
    """The containers that grew, the heaviest first; each with the statement that fills it.

    A container around the one that grows is left out.

    Args:
        survey: A walk over the live objects.
        before: Lengths of containers at an earlier time, by their ids.
        elements: By how many elements a container must have grown at least.
        host_bytes: By how much of the host's memory, if by no tensors. What a worker handed over always counts, and so
            does what does not tell its size.
        copied: Bytes of the weights in an element, if they are a copy of a model's: those that are called are met as
            models, not in the container.
        owned: Storages that live anyway: no graph is what keeps them.
    """
    found: list[tuple[ContainerGrowth, Link]] = []
    containers = list(survey.snapshot.containers())
    alike = Counter(
        _name_of(link)
        for link, now in containers
        if now.length - before.get(id(link.value), now.length) >= max(elements, 1)
    )
    for link, now in containers:
        longer = now.length - before.get(id(link.value), now.length)
        if longer < elements or longer <= 0 or innermost(link).via not in NAMES or _is_state(link):
            continue
        fresh = max(longer - now.repeated, 0)
        grown = (now.bytes - now.common_bytes) * fresh // max(now.length - now.repeated, 1)
        others = alike[_name_of(link)]
        growth = ContainerGrowth(NOWHERE, longer, grown, alike=others)
        copies = copied(newest_of(link.value)) * longer
        if copies > 2 * grown:
            growth = replace(growth, bytes=copies, copy_bytes=copies // longer)
        else:
            element = newest_of(link.value)
            other = next((other for _, other in sample_of(link.value) if other is not element), None)
            is_repeated = sum(one is element for _, one in sample_of(link.value)) > 1  # one object, many times
            weight = HostSize() if is_repeated else host_size(element, beside=other)
            from_worker = is_from_worker(element)
            plain = max(weight.bytes - sum(storages_of(tensors_in(element, 3)).values()), 0)
            growth = replace(growth, newest_bytes=weight.bytes, plain_bytes=plain, from_worker=from_worker)
            light = grown <= 0 and weight.bytes * fresh * others < host_bytes
            if light and not from_worker and not weight.unknown:
                continue
        found.append((growth, link))
    found.sort(key=lambda item: (item[0].bytes, item[0].elements), reverse=True)
    return tuple(
        _described(survey, link, growth, owned)
        for growth, link in found[:MAX_GROWTHS]
        if not any(inner is not link and link in inner.trail() for _, inner in found)
    )


def _name_of(link: Link) -> tuple[object, ...]:
    """The same for the lists that several objects of one class have in an attribute; of its own for any other."""
    owner = innermost(link)
    if owner.value is link.value and owner.via is Via.ATTRIBUTE and owner.parent is not None:
        return type(owner.parent.value), owner.key
    return (id(link.value),)


def _is_state(link: Link) -> bool:
    """Whether a container is an optimizer's state, or lies in it: as long as there are parameters, or a history."""
    return any(
        step.key == "state" and step.parent is not None and issubclass(type(step.parent.value), torch.optim.Optimizer)
        for step in link.trail()
    )


def _described(survey: HolderSearch, link: Link, growth: ContainerGrowth, owned: Collection[int]) -> ContainerGrowth:
    """What grew, with the statement that fills it and what its newest elements are."""
    tensors = [tensor for element in latest_of(link.value) for tensor in tensors_in(element, 3)]
    graph = any(graph_of(tensor) is not None for tensor in tensors)
    place = survey.cause(link, graph=graph, tensors=bool(tensors))
    return replace(
        growth,
        place=place,
        shared=growth.from_worker and bool(tensors) and all(map(is_from_worker, tensors)),
        newest=tuple(storages_of(tensors)),
        graphs=graphs_below(survey, link, owned) if graph else None,
        numbers=bool(tensors) and all(tensor.numel() == 1 for tensor in tensors),
        on_cpu=bool(tensors) and all(tensor.device.type == "cpu" for tensor in tensors),
        pinned=torch.cuda.is_initialized() and any(tensor.is_pinned() for tensor in tensors),
        weights=not tensors and growth.bytes > 0 and _are_weights(survey, link),
        is_module=not tensors and any(True for _ in modules_in(newest_of(link.value), 2, MAX_PARTS)),
        length=length_of(link.value),
        number=id(link.value),
        capacity=capacity_of(link, place.file, place.holder),
    )


def _are_weights(survey: HolderSearch, link: Link) -> bool:
    """Whether all tensors below a container are parameters of modules that it keeps."""
    trails = [trail for leaf in survey.snapshot.tensors if link in (trail := leaf.trail())]
    return bool(trails) and all(
        issubclass(type(trail[-1].value), nn.Parameter)
        and any(issubclass(type(inner.value), nn.Module) for inner in trail[trail.index(link) + 1 : -1])
        for trail in trails
    )


MAX_SIZED = 16
"""Graphs that are gone through, each of thousands of nodes at most; the rest is taken to be like them."""


@final
@dataclass(frozen=True, slots=True)
class GraphsBelow:
    """Plain data on the graphs of a container's elements."""

    everywhere: bool
    """Whether every tensor in the container carries one."""
    bytes: int
    """What all elements hold: their tensors and what the graphs saved, without what all of them share."""
    saved: bool
    """Whether the graphs saved anything of their own that is still there: no backward ran through them."""


def graphs_below(survey: HolderSearch, link: Link, ignore: Collection[int]) -> GraphsBelow | None:
    """The graphs of the tensors in a container; None where none has one."""
    found = {id(leaf.value): leaf.value for leaf in survey.snapshot.below(link)}
    tensors = list(found.values())
    carriers = [tensor for tensor in tensors if graph_of(tensor) is not None]
    if not carriers:
        return None
    sized = carriers[-MAX_SIZED:]
    saved = [saved_storages(graph_of(tensor)) for tensor in sized]
    shared = set.intersection(*map(set, saved)) if len(saved) > 1 else set()
    own = {key: size for part in saved for key, size in part.items() if key not in shared and key not in ignore}
    held = {key: size for key, size in storages_of(sized).items() if key not in ignore} | own
    times = max(length_of(link.value) / len(tensors), 1.0) * len(carriers) / len(sized)  # long ones are sampled
    return GraphsBelow(len(carriers) == len(tensors), int(sum(held.values()) * times), bool(own))
