"""What is to be told of copies of the weights: a loaded checkpoint, an average, copies that pile up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import final

from memguard.facts import CheckpointKept, Fact, ModelCopies
from memguard.probes.kept.copies import Copy, is_loaded, is_mapped_to_host
from memguard.source.origins import is_on_host
from memguard.source.stores import ends_with_a_call
from memguard.stats import Stage

MOST_AVERAGES = 4
"""Averages under one name, of several decay rates; more are the weights of many epochs, whatever the name says."""


@final
class Piles:
    """Tells of copies when there are more than were told of before."""

    def __init__(self) -> None:
        self._told = 0

    def facts(self, found: Iterable[Copy], frames: Iterable[FrameType], *, batch: int, stage: Stage) -> Iterator[Fact]:
        """The facts that copies come to, if there are more than ever.

        Args:
            found: All that there are now, the heaviest first.
            frames: The user's frames, innermost first.
            batch: Batch in which they were found.
            stage: Its stage.
        """
        # An optimizer that has not been seen to step yet owns its state all the same.
        copies = [c for c in found if c.bytes and "optim" not in f"{c.place.holder} {c.place.source}".lower()]
        copies = [c for c in copies if not is_on_host(c.place)]
        if len(copies) <= self._told:
            return
        self._told = len(copies)
        frames = list(frames)
        loaded = [copy for copy in copies if is_loaded(copy.place)]
        for copy in loaded:
            if not is_mapped_to_host(copy.place):
                yield CheckpointKept(batch=batch, stage=stage, place=copy.place, bytes=copy.bytes)
        held = Counter((copy.place.file, copy.place.line) for copy in copies)
        averaged = [copy for copy in copies if copy not in loaded and copy.averaged]
        averaged = [copy for copy in averaged if held[copy.place.file, copy.place.line] <= MOST_AVERAGES]
        others = [copy for copy in copies if copy not in loaded and copy not in averaged]
        passing = [copy for copy in others if ends_with_a_call(copy.place, frames)]
        limited = [copy for copy in others if copy.limited and copy not in passing]
        lasting = [copy for copy in others if not copy.limited and copy not in passing]
        for group in (lasting, limited, passing, averaged):
            if not group:
                continue
            group.sort(key=lambda copy: -held[copy.place.file, copy.place.line])  # stable: of equals the heaviest
            yield ModelCopies(
                batch=batch,
                stage=stage,
                place=group[0].place,
                copies=len(group),
                bytes=sum(copy.bytes for copy in group),
                holders=tuple(sorted({copy.place.holder for copy in group if copy.place.holder})),
                averaged=group is averaged,
                passing=group is passing,
                limited=group is limited,
                trained=all(copy.trained for copy in group),
                alike=group is not averaged and any(copy.alike for copy in group),
                changing=all(copy.written for copy in group),
            )
