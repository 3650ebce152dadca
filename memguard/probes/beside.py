"""Lists that statements next to each other fill: predictions and targets, which are one cause."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from memguard.facts import KeptOutputs


def as_one(kept: Iterable[KeptOutputs]) -> list[KeptOutputs]:
    """Of lists that are filled side by side the first, with what all of them keep.

    Args:
        kept: What one look found, the heaviest first.
    """
    joined: list[KeptOutputs] = []
    for fact in kept:
        at = next((i for i, other in enumerate(joined) if _are_one(fact, other)), None)
        if at is None:
            joined.append(fact)
            continue
        first = joined[at]
        joined[at] = replace(
            first,
            tensors=first.tensors + fact.tensors,
            first_batch=min(first.first_batch, fact.first_batch),
            bytes=first.bytes + fact.bytes,
            bytes_per_batch=first.bytes_per_batch + fact.bytes_per_batch,
            beside=(*first.beside, fact.place.holder or ""),
        )
    return joined


def _are_one(fact: KeptOutputs, other: KeptOutputs) -> bool:
    alike = (fact.stage, fact.bounded, fact.numbers) == (other.stage, other.bounded, other.numbers)
    return alike and fact.place.is_beside(other.place)
