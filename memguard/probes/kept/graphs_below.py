"""What the graphs hold that the elements of a container carry."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import final

from memguard.probes.naming.holders import Survey
from memguard.probes.naming.walk import Link
from memguard.probes.objects import length_of
from memguard.probes.objects.sizes import saved_storages, storages_of

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


def graphs_below(survey: Survey, link: Link, ignore: Collection[int]) -> GraphsBelow | None:
    """The graphs of the tensors in a container; None where none has one.

    Args:
        survey: The walk that met it.
        link: Leads to the container.
        ignore: Storages that live anyway, like the weights.
    """
    found = {id(leaf.value): leaf.value for leaf in survey.tensors if _is_below(leaf, link)}
    tensors = list(found.values())
    carriers = [tensor for tensor in tensors if tensor.grad_fn is not None]
    if not carriers:
        return None
    sized = carriers[-MAX_SIZED:]
    saved = [saved_storages(tensor.grad_fn) for tensor in sized]
    shared = set.intersection(*map(set, saved)) if len(saved) > 1 else set()
    own = {key: size for part in saved for key, size in part.items() if key not in shared and key not in ignore}
    held = {key: size for key, size in storages_of(sized).items() if key not in ignore} | own
    times = max(length_of(link.value) / len(tensors), 1.0) * len(carriers) / len(sized)  # long ones are sampled
    return GraphsBelow(len(carriers) == len(tensors), int(sum(held.values()) * times), bool(own))


def _is_below(leaf: Link, link: Link) -> bool:
    return any(step.value is link.value for step in leaf.trail())
