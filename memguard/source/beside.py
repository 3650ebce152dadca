"""Lists that statements next to each other fill: predictions and targets, which are one cause."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from memguard.facts import KeptOutputs


def as_one(kept: Iterable[KeptOutputs]) -> list[KeptOutputs]:
    """Of lists that are filled side by side the one that stands first, with what all of them keep."""
    joined: list[KeptOutputs] = []
    for fact in kept:
        at = next((i for i, other in enumerate(joined) if _are_one(fact, other)), None)
        if at is None:
            joined.append(fact)
            continue
        one, other = sorted((joined[at], fact), key=lambda fact: fact.place.line or 0)
        joined[at] = replace(
            one,
            tensors=one.tensors + other.tensors,
            first_batch=min(one.first_batch, other.first_batch),
            bytes=one.bytes + other.bytes,
            bytes_per_batch=one.bytes_per_batch + other.bytes_per_batch,
            what=one.what or other.what,
            beside=(*one.beside, other.place.holder or "", *other.beside),
        )
    return joined


def _are_one(fact: KeptOutputs, other: KeptOutputs) -> bool:
    alike = (fact.stage, fact.bounded, fact.numbers) == (other.stage, other.bounded, other.numbers)
    return alike and fact.cached is other.cached and fact.place.is_beside(other.place)
