"""What the holders of reported facts keep now: bytes and counts measured anew, as the run goes on and as it ends."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any, Final

from memguard.evidence.interface import ProbeContext
from memguard.evidence.kept.retained import Kept, Name
from memguard.records.facts import ExceptionHolds, Fact, KeptOutputs, ModelCopies, RetainedGraphs, ViewsPinStorage
from memguard.records.facts.storages import OF_BATCHES
from memguard.records.stats import Stage
from memguard.thresholds import EXPLAINED

NEARLY: Final = 0.9
"""Share from which on two counts, or two growths, are taken to be of the same."""
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
