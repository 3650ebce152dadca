"""A heap snapshot: everything reachable, for several questions, and what may be kept of it."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import torch

from memguard.heap.attributes import attributes_of, is_tensor, is_user_class
from memguard.heap.children import ChildReader, Via
from memguard.heap.containers import FULL, all_of, container_of, length_of, tensors_in
from memguard.heap.walk import Link, Walk
from memguard.torch_objects.storages import storage_key

DEPTH = 3
"""Of tuples, lists, dicts and dataclasses within an element of a long container."""
MOST_ELEMENTS = 8192
"""Elements of long containers that are read for a measure, some 10 milliseconds."""
LATE_EVERY = 32
"""Objects that are met between two questions whether it is late."""
FAILURES: Final = (BaseException, types.TracebackType)


@final
@dataclass(frozen=True, slots=True)
class ContainerSize:
    """What one container held at one time: numbers alone."""

    length: int
    bytes: int
    """Of the storages below it, each once; scaled up where a long container was sampled. A part of a tensor that is
    there under another name brings none."""
    repeated: int = 0
    """Elements that are tensors which it holds already."""
    common_bytes: int = 0
    """Of storages that most of its elements lead to: another element brings none of these."""


@final
class HeapSnapshot:
    """What one walk met. A context manager, at whose end every reference is dropped.

    Attributes:
        tensors: Every link to a tensor.
    """

    def __init__(
        self,
        roots: Iterable[tuple[str | None, object]],
        *,
        reader: ChildReader | None = None,
        is_late: Callable[[], bool] | None = None,
    ) -> None:
        tensors: list[Link] = []
        self.tensors = tensors

        def meet(link: Link) -> None:  # no method: the walk would hold the snapshot, and a cycle all that was met
            if is_tensor(link.value):
                tensors.append(link)

        self._walk = Walk(meet, reader=reader)
        self._walk.begin(Link(value, Via.ROOT, name) for name, value in roots)
        asked = itertools.count(1)
        self._walk.run(None if is_late is None else lambda: not next(asked) % LATE_EVERY and is_late())

    def __enter__(self) -> HeapSnapshot:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Drops every reference."""
        self._walk.let_go()
        for link in self.tensors:
            link.value = None
        self.tensors.clear()

    @property
    def links(self) -> Iterable[Link]:
        """Every object that was met, each once, with the first way to it."""
        return self._walk.links

    @property
    def complete(self) -> bool:
        """Whether it stopped at no bound."""
        return self._walk.complete

    def others(self, link: Link) -> list[Link]:
        """Other names under which the object of a link was met."""
        return self._walk.others(link)

    def below(self, link: Link) -> list[Link]:
        """The links to tensors that lead through an object."""
        return [leaf for leaf in self.tensors if any(step.value is link.value for step in leaf.trail())]

    def containers(self) -> Iterator[tuple[Link, ContainerSize]]:
        """Every container that was met, and what it holds. What an exception keeps with its frames is left out."""
        bytes_below: dict[int, int] = {}
        met: dict[int, dict[int, int]] = {}
        """Of each container the elements that lead to tensors: their identities by where they are."""
        sizes: dict[int, int] = {}
        elements_of_key: dict[tuple[int, int], set[int]] = {}
        """Of each container and storage the elements that lead there, by where they are."""
        of_parts: set[int] = set()
        """Containers with elements that show a part of their storage: many may show the same one."""
        keys = [storage_key(leaf.value) for leaf in self.tensors]
        parts = [_is_part(leaf.value, key) for leaf, key in zip(self.tensors, keys, strict=True)]
        whole = {key[0] for key, is_part in zip(keys, parts, strict=True) if key is not None and not is_part}
        for leaf, key, is_part in zip(self.tensors, keys, parts, strict=True):
            trail = leaf.trail()
            failed = max((at for at, link in enumerate(trail) if issubclass(type(link.value), FAILURES)), default=-1)
            for link, element in itertools.pairwise(trail[failed + 1 :]):
                number = id(link.value)
                if container_of(type(link.value)) is None:
                    continue
                met.setdefault(number, {})[element.index] = id(element.value)
                if key is None or (is_part and key[0] in whole):
                    continue
                if is_part:
                    of_parts.add(number)
                sizes[key[0]] = key[1]
                elements_of_key.setdefault((number, key[0]), set()).add(element.index)
        common: dict[int, int] = {}
        for (number, storage), indices in elements_of_key.items():
            into = common if len(indices) > max(len(met[number]) // 2, 1) else bytes_below
            into[number] = into.get(number, 0) + sizes[storage]
        for link in self.links:
            if container_of(type(link.value)) is not None:
                length, size = length_of(link.value), bytes_below.get(id(link.value), 0)
                of_all = common.get(id(link.value), 0)
                elements = met.get(id(link.value), {})
                repeated = len(elements) - len(set(elements.values()))
                if length > FULL and elements:  # a sample; where half of it repeats, so does the rest
                    scale = length / len(elements)
                    repeats = 2 * repeated >= len(elements)
                    size, repeated = int(size if repeats else size * scale), int(repeated * scale if repeats else 0)
                    if id(link.value) in of_parts:
                        size = max(_measured(link.value, whole) - of_all, 0)
                yield link, ContainerSize(length, size + of_all, repeated, of_all)


def _is_part(tensor: torch.Tensor, key: tuple[int, int] | None) -> bool:
    """Whether a tensor shows less than half of its storage."""
    return key is not None and 2 * tensor.numel() * tensor.element_size() < key[1]


def _measured(container: object, whole: set[int]) -> int:
    """Bytes of the storages below a long container, each once, without those that are whole under another name."""
    elements = all_of(container)
    newest = elements[-MOST_ELEMENTS:]
    tensors = [tensor for element in newest for tensor in tensors_in(element, DEPTH)]
    keys = [(tensor, storage_key(tensor)) for tensor in tensors]
    sizes = dict(key for tensor, key in keys if key is not None and not (key[0] in whole and _is_part(tensor, key)))
    return sum(sizes.values()) * len(elements) // max(len(newest), 1)


def is_below_failure(link: Link) -> bool:
    """Whether an exception or a traceback leads to an object."""
    return any(issubclass(type(each.value), FAILURES) for each in link.trail())


def long_containers(links: Iterable[Link]) -> list[Link]:
    """The links to containers that lead to some tensors and of which a walk read a sample, each once."""
    steps = {id(step.value): step for link in links for step in link.trail()}
    return [
        step for step in steps.values() if container_of(type(step.value)) is not None and length_of(step.value) > FULL
    ]


def unsampled_tensors(links: Iterable[Link], *, inside: bool = False) -> Iterator[Link]:
    """Links to the other tensors, each once, in the long containers that lead to some tensors.

    Args:
        links: Lead to the tensors.
        inside: Whether to look into the attributes of the user's objects as well.
    """
    links = list(links)
    met = {id(link.value) for link in links}
    for container in long_containers(links):
        for element in all_of(container.value):
            has_parts = inside and is_user_class(type(element))
            for tensor in tensors_in(attributes_of(element) if has_parts else element, DEPTH):
                if id(tensor) not in met:
                    met.add(id(tensor))
                    yield Link(tensor, Via.ITEM, None, container, container.depth + 1)


def tensors_of_all(links: Sequence[Link]) -> list[torch.Tensor] | None:
    """All tensors, each once, in the long containers through which some were met; None where that is too much to read.

    Args:
        links: Links to tensors under one name, of which a walk met a sample.
    """
    long = long_containers(links)
    if sum(length_of(container.value) for container in long) > MOST_ELEMENTS:
        return None
    found: dict[int, Any] = {id(link.value): link.value for link in (*links, *unsampled_tensors(links))}
    return list(found.values())
