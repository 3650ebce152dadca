"""Growth that was reported, measured again while memory still grows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import final

from memguard.evidence.interface import ProbeContext
from memguard.evidence.kept.census import ContainerGrowth, find_growth
from memguard.evidence.naming.holders import HolderSearch
from memguard.records.facts import Fact, KeptOutputs, Place

MIN_BYTES_PER_BATCH = 1024


@final
class GrowthUpdates:
    """Counts the containers that were told of at two moments, and tells at which rate they grew between.

    What is told of a list that gets an element with every step of an environment, or of a cache that just began to
    fill, is no measure of what a batch of training adds to it later.
    """

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        self._watch, self._report = watch, report
        self._lengths: dict[int, int] = {}

    def begin(self) -> None:
        """Notes how long all containers are, where any was told of."""
        self._lengths = {}
        if self._watch.kept:
            self._lengths = self._survey().snapshot.lengths()

    def conclude(self, batches: int, *, rounding: float = 1.0) -> None:
        """Tells of those that grew faster than was told.

        Args:
            batches: Batches of training since the beginning.
            rounding: By how much the allocator's blocks are larger than what was asked for.
        """
        lengths, self._lengths = self._lengths, {}
        if not lengths:
            return
        survey, kept = self._survey(), self._watch.kept
        found: dict[int, list[ContainerGrowth]] = {}
        for growth in find_growth(survey, lengths, nbytes=1):
            at = next((at for at, fact in enumerate(kept) if _is_of(growth.place, fact)), None)
            if at is not None:
                found.setdefault(at, []).append(growth)
        for at, growths in found.items():
            rate = rounding * sum(growth.bytes for growth in growths) / batches
            if rate > max(kept[at].bytes_per_batch, MIN_BYTES_PER_BATCH):
                kept[at] = replace(
                    kept[at],
                    batch=self._watch.batch,
                    stage=self._watch.stage,
                    tensors=sum(growth.length for growth in growths),
                    bytes=sum(growth.bytes * growth.length // growth.elements for growth in growths),
                    bytes_per_batch=rate,
                )
                self._report(kept[at])

    def _survey(self) -> HolderSearch:
        watch = self._watch
        return HolderSearch(models=watch.models, extra=watch.roots(), stage=watch.stage, calling=watch.calling)


def _is_of(place: Place, fact: KeptOutputs) -> bool:
    """Whether a place is what a fact tells of, or one of those that are filled beside it."""
    told = fact.place
    is_same = (place.file, place.line, place.holder) == (told.file, told.line, told.holder)
    return is_same or (place.holder in fact.beside and place.is_beside(told))
