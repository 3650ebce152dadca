"""The tensors that a walk passed over: of long containers it read a sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from memguard.probes.naming.walk import Link
from memguard.probes.objects import Via
from memguard.probes.objects.elements import FULL, all_of, container_of, length_of
from memguard.probes.objects.nested import tensors_in

DEPTH = 3
"""Of tuples, lists, dicts and dataclasses within an element."""


def passed_over(links: Iterable[Link]) -> Iterator[Link]:
    """Links to the other tensors, each once, in the long containers that lead to some tensors.

    Args:
        links: Lead to those that were met.
    """
    links = list(links)
    met = {id(link.value) for link in links}
    trails = [link.trail() for link in links]
    on_the_way = {id(step.value): step for trail in trails for step in trail}
    for container in on_the_way.values():
        if container_of(type(container.value)) is None or length_of(container.value) <= FULL:
            continue
        for element in all_of(container.value):
            for tensor in tensors_in(element, DEPTH):
                if id(tensor) not in met:
                    met.add(id(tensor))
                    yield Link(tensor, Via.ITEM, None, container, container.depth + 1)
