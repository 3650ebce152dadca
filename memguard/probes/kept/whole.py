"""Long containers, read whole: of those a walk meets but a few elements."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from memguard.probes.naming.names import growing, innermost
from memguard.probes.naming.walk import Link
from memguard.probes.objects import container_of, length_of
from memguard.probes.objects.elements import FULL, all_of
from memguard.probes.objects.nested import tensors_in

MOST = 8192
"""Elements that are read, some 10 milliseconds."""
DEPTH = 3
"""Of tuples, lists, dicts and dataclasses within an element."""


def tensors_of_all(leaves: Iterable[Link]) -> list[torch.Tensor] | None:
    """All tensors, each once, in the long containers through which some were met; None where that is too much to read.

    Args:
        leaves: Links to tensors under one name, of which a walk met a sample.
    """
    found: dict[int, torch.Tensor] = {}
    long: dict[int, object] = {}
    for leaf in leaves:
        found[id(leaf.value)] = leaf.value
        trail, name = leaf.trail(), innermost(growing(leaf))
        for link in trail[trail.index(name) : -1]:
            if container_of(type(link.value)) is not None and length_of(link.value) > FULL:
                long[id(link.value)] = link.value
                break
    if sum(map(length_of, long.values())) > MOST:
        return None
    for container in long.values():
        for element in all_of(container):
            found.update((id(tensor), tensor) for tensor in tensors_in(element, DEPTH))
    return list(found.values())
