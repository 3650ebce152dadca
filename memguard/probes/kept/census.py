"""Counts what containers hold, so that two counts some batches apart name what grows."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, final

import torch
from torch import nn

from memguard.facts import Place
from memguard.probes.kept.graphs_below import GraphsBelow, graphs_below
from memguard.probes.naming.capacities import capacity_of
from memguard.probes.naming.holders import Survey
from memguard.probes.naming.names import NAMES, innermost, text_of
from memguard.probes.naming.walk import Link
from memguard.probes.objects import container_of, length_of
from memguard.probes.objects.host_sizes import is_from_worker, is_unknown, latest_of, newest_of, size_of
from memguard.probes.objects.nested import tensors_in
from memguard.probes.objects.sizes import storage_key, storages_of

_FAILURES: Final = (BaseException, types.TracebackType)


@final
@dataclass(frozen=True, slots=True)
class Count:
    """What one container held at one time."""

    length: int
    tensors: int
    """Tensors below it that were met; long containers are sampled."""
    bytes: int
    """Of their storages, each once; scaled up where a long container was sampled. A part of a tensor that is there
    under another name brings none."""


@final
@dataclass(frozen=True, slots=True)
class Growth:
    """A container that got longer, or heavier, between two counts."""

    place: Place
    kind: str
    """Like ``"list"``."""
    elements: int
    """By how many it grew."""
    bytes: int
    newest_bytes: int = 0
    """What its newest element takes of the host's memory."""
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
    copy_bytes: int = 0
    """Of the weights in its newest element, where they are a copy of a model's, and are called: met as models."""
    length: int = 0
    """How many it has now."""
    number: int = 0
    """The container's identity; only good while it lives."""
    capacity: int | None = None
    """How many it can have, as far as its maxlen or the source tells."""


Census = Mapping[str, Count]
"""Path of a container -> what it held."""


def take_census(survey: Survey) -> Census:
    """Counts the containers that a survey met."""
    return {path: count for path, (_, count) in _counted(survey).items()}


def find_growth(
    survey: Survey,
    before: Census,
    *,
    elements: float = 1,
    nbytes: int = 0,
    host_bytes: int | None = None,
    copied: Callable[[object], int] = lambda newest: 0,
    owned: Collection[int] = (),
) -> tuple[Growth, ...]:
    """The containers that grew since an earlier count, the heaviest first; each with the statement that fills it.

    A container around the one that grows is left out, and so is one that is new.

    Args:
        survey: A walk over the live objects.
        before: The earlier count.
        elements: By how many elements a container must have grown at least.
        nbytes: By how many bytes of tensors.
        host_bytes: Or by how many of the host's memory; None leaves that out. What a worker handed over always counts,
            and so does what does not tell its size.
        copied: Bytes of the weights in an element, if they are a copy of a model's: those that are called are met as
            models, not in the container.
        owned: Storages that live anyway: no graph is what keeps them.
    """
    found: list[tuple[int, int, Link]] = []
    newest: dict[int, tuple[int, bool]] = {}
    called: dict[int, int] = {}
    for path, (link, count) in _counted(survey).items():
        old = before.get(path)
        if old is None or count.length - old.length < elements:
            continue
        grown = max(count.bytes - old.bytes, 0)
        copies = copied(newest_of(link.value)) * (count.length - old.length)
        if copies > 2 * grown:
            grown, called[id(link)] = copies, copies // (count.length - old.length)
        elif host_bytes is not None:
            element = newest_of(link.value)
            newest[id(link)] = size, from_worker = size_of(element), is_from_worker(element)
            light = grown < nbytes and size * (count.length - old.length) < host_bytes
            if light and not from_worker and not is_unknown(element):
                continue
        elif grown < nbytes:
            continue
        found.append((count.length - old.length, grown, link))
    found.sort(key=lambda item: (item[1], item[0]), reverse=True)
    growing = {id(link): link for _, _, link in found}
    growths = []
    for longer, size, link in found[:MAX_GROWTHS]:
        if any(id(inner) != id(link) and link in inner.trail() for inner in growing.values()):
            continue
        of_newest = newest.get(id(link), (0, False))
        growths.append(_growth_of(survey, link, longer, size, of_newest, called.get(id(link), 0), owned))
    return tuple(growths)


def _growth_of(
    survey: Survey,
    link: Link,
    elements: int,
    nbytes: int,
    newest: tuple[int, bool],
    copy_bytes: int,
    owned: Collection[int],
) -> Growth:
    of_newest, from_worker = newest
    tensors = [tensor for element in latest_of(link.value) for tensor in tensors_in(element, 3)]
    graph = any(tensor.grad_fn is not None for tensor in tensors)
    place = survey.cause(link, graph=graph, tensors=bool(tensors))
    return Growth(
        place,
        container_of(type(link.value)) or "object",
        elements,
        nbytes,
        newest_bytes=of_newest,
        from_worker=from_worker,
        shared=from_worker and bool(tensors) and all(map(is_from_worker, tensors)),
        newest=tuple(storages_of(tensors)),
        graphs=graphs_below(survey, link, owned) if graph else None,
        numbers=bool(tensors) and all(tensor.numel() == 1 for tensor in tensors),
        on_cpu=bool(tensors) and all(tensor.device.type == "cpu" for tensor in tensors),
        pinned=torch.cuda.is_initialized() and any(tensor.is_pinned() for tensor in tensors),
        weights=not tensors and nbytes > 0 and _are_weights(survey, link),
        copy_bytes=copy_bytes,
        length=length_of(link.value),
        number=id(link.value),
        capacity=capacity_of(link, place.file, place.holder),
    )


def _are_weights(survey: Survey, link: Link) -> bool:
    """Whether all tensors below a container are parameters of modules that it keeps."""
    trails = [trail for leaf in survey.tensors if link in (trail := leaf.trail())]
    return bool(trails) and all(
        issubclass(type(trail[-1].value), nn.Parameter)
        and any(issubclass(type(inner.value), nn.Module) for inner in trail[trail.index(link) + 1 : -1])
        for trail in trails
    )


def count_back(survey: Survey, lengths: Mapping[int, int]) -> Census:
    """What an earlier census would have counted, of containers whose length at that time is known by their ids."""
    found = {}
    for path, (link, count) in _counted(survey).items():
        length = lengths.get(id(link.value))
        if length is not None and count.length:
            found[path] = Count(length, min(count.tensors, length), count.bytes * length // count.length)
    return found


MAX_GROWTHS = 8


def _counted(survey: Survey) -> dict[str, tuple[Link, Count]]:
    """Every container with a path of its own: two lists of one path are told apart by their order."""
    below: dict[int, tuple[int, int]] = {}
    elements: dict[int, set[int]] = {}
    """Those that lead to tensors: of a long container some."""
    seen: dict[int, set[int]] = {}
    there = {key[0] for leaf in survey.tensors if (key := storage_key(leaf.value)) and not _is_part(leaf.value, key[1])}
    for leaf in survey.tensors:
        key = storage_key(leaf.value)
        if key is not None and key[0] in there and _is_part(leaf.value, key[1]):
            key = None
        trail = _kept_without_failure(leaf)
        for link, element in itertools.pairwise([*trail, leaf]):
            if container_of(type(link.value)) is None:
                continue
            elements.setdefault(id(link.value), set()).add(id(element.value))
            tensors, size = below.get(id(link.value), (0, 0))
            first = key is not None and key[0] not in seen.setdefault(id(link.value), set())
            if key is not None and first:
                seen[id(link.value)].add(key[0])
                size += key[1]
            below[id(link.value)] = (tensors + 1, size)
    found: dict[str, tuple[Link, Count]] = {}
    for link in survey.walk.links:
        if container_of(type(link.value)) is None or innermost(link).via not in NAMES:
            continue
        length = length_of(link.value)
        tensors, size = below.get(id(link.value), (0, 0))
        met = len(elements.get(id(link.value), ()))
        scale = length / met if 0 < met < length else 1
        base = path = _path(link)
        number = 1
        while path in found:
            number += 1
            path = f"{base}#{number}"
        found[path] = (link, Count(length, tensors, int(size * scale)))
    return found


def _is_part(tensor: torch.Tensor, nbytes: int) -> bool:
    """Whether a tensor shows less than half of its storage."""
    return 2 * tensor.numel() * tensor.element_size() < nbytes


def _kept_without_failure(leaf: Link) -> list[Link]:
    """What keeps a tensor, down to it; of what an exception keeps with the frames of its traceback, MG307 tells."""
    trail = leaf.trail()[:-1]
    last = max((at for at, link in enumerate(trail) if issubclass(type(link.value), _FAILURES)), default=-1)
    return trail[last + 1 :]


def _path(link: Link) -> str:
    """The names and keys from the root to a container."""
    steps = [str(step.key) for step in link.trail() if step.key is not None]
    return f"{text_of(innermost(link))}: {'.'.join(steps)}"
