"""The tensors that a walk passed over: of long containers it read a sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from memguard.probes.naming.walk import Link
from memguard.probes.objects.elements import FULL, all_of, container_of, length_of
from memguard.probes.objects.nested import tensors_in


def passed_over(links: Iterable[Link]) -> Iterator[torch.Tensor]:
    """The other tensors, each once, in the long containers that lead to some tensors.

    Args:
        links: Lead to those that were met.
    """
    links = list(links)
    met = {id(link.value) for link in links}
    trails = [link.trail() for link in links]
    on_the_way = {id(step.value): step.value for trail in trails for step in trail}
    for container in on_the_way.values():
        if container_of(type(container)) is None or length_of(container) <= FULL:
            continue
        for element in all_of(container):
            for tensor in tensors_in(element, 3):
                if id(tensor) not in met:
                    met.add(id(tensor))
                    yield tensor
