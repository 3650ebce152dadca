"""Graphs of many forwards alive together with no optimizer step between them: a gradient estimate."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import final

from memguard.autograd.graph import held_bytes
from memguard.evidence.graph_tracker import ForwardGraph
from memguard.evidence.graphs.graph_contents import who_holds
from memguard.evidence.interface import ProbeContext
from memguard.evidence.minimum_sizes import LEAST, least_of_device, least_of_peak
from memguard.evidence.naming.holders import Holder
from memguard.records.facts import Fact, RetainedGraphs
from memguard.source.unneeded_graphs import is_made_of_itself, is_unneeded
from memguard.torch_objects.storages import owned_storages

TOGETHER = 24
"""Forwards of one model whose graphs are alive, since no optimizer has made a step."""
STEPS, MOST_FORWARDS = 8, 4
"""Optimizer steps before, and forwards for each of them at most: then this is no way in which the model is trained."""
MORE = 2
"""They are looked at again when so many times more are alive."""


@final
class GraphsTogether:
    """Looks for a function that keeps the graphs of many forwards though it needs one at a time, or none."""

    def __init__(
        self, watch: ProbeContext, report: Callable[[Fact], None], holders: Callable[..., tuple[Holder, ...]]
    ) -> None:
        self._watch, self._report, self._holders = watch, report, holders
        self._needed = TOGETHER
        self._crowds: dict[int, list[int]] = {}
        """Of each model the steps before its last forward, its forwards since, and the most before another step."""

    def look(self, mark: ForwardGraph) -> None:
        """Counts a forward that ended just now; looks where many have come without a step."""
        crowd = self._crowds.get(mark.module)
        if crowd is None:
            crowd = self._crowds[mark.module] = [mark.steps, 0, 0]
        elif crowd[0] != mark.steps:
            if crowd[1] > crowd[2]:
                crowd[2] = crowd[1]
            crowd[0], crowd[1] = mark.steps, 0
        crowd[1] += 1
        if crowd[1] < TOGETHER:
            return
        live = self._watch.ledger.live
        if len(live) >= self._needed:
            self._needed = MORE * len(live)
            marks = find_together(list(live.values()), mark)
            if marks:
                self._conclude(marks, most=crowd[2])

    def forget(self) -> None:
        """Forgets the models."""
        self._crowds.clear()

    def _conclude(self, marks: list[ForwardGraph], most: int) -> None:
        watch, last, used = self._watch, marks[-1], marks[0].used
        if not used and (watch.optimizer_steps < STEPS or most > MOST_FORWARDS):
            return
        older = marks[:-2]  # of the newest any variable may hold the graph
        found, contents = who_holds(older, self._holders, watch.models, stage=last.stage)
        held = contents.total() or len(marks) * _size_of(last, watch)  # what a comprehension is making is out of reach
        del contents
        least = max(least_of_device(watch.device_total_bytes), least_of_peak(watch.record) or LEAST)
        if held < least or not found or not all(is_unneeded(holder.place, used=used) for holder in found):
            return
        self._needed = sys.maxsize
        place = found[0].place
        if (place.file, place.line) in watch.told:
            return
        watch.told.add((place.file, place.line))
        self._report(
            RetainedGraphs(
                batch=watch.batch,
                stage=last.stage,
                place=place,
                graphs=len(marks),
                first_batch=marks[0].batch,
                last_batch=last.batch,
                optimizer_steps=0,
                bytes=held,
                backward=False,
                carried=is_made_of_itself(place),
                together=True,
            )
        )


def _size_of(mark: ForwardGraph, watch: ProbeContext) -> int:
    """Bytes of what the graph of a forward's output saved."""
    output = mark.output() if mark.output is not None else None
    return sum(held_bytes(output, owned_storages(watch.models)).values()) if output is not None else 0


def find_together(marks: Iterable[ForwardGraph], last: ForwardGraph) -> list[ForwardGraph]:
    """The forwards of one model since the last optimizer step whose graphs are alive and await a backward, if many.

    Args:
        marks: All whose graphs are alive.
        last: The newest.
    """
    found = [
        mark
        for mark in marks
        if mark.module == last.module
        and mark.training == last.training
        and mark.steps == last.steps
        and mark.outer is None
        and (mark.created is not None or (mark.training and not mark.used))
    ]
    if len(found) < TOGETHER:
        return []
    # What runs through the older ones again is a derivative of the whole way.
    return found if found[0].uses <= max(mark.uses for mark in found[1:]) else []
