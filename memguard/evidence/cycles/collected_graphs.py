"""Graphs and tensors that only the cyclic garbage collector frees."""

from __future__ import annotations

import gc
import types
from dataclasses import dataclass
from typing import Any, final

import torch

from memguard.evidence.cycles.collector_events import CollectorProbe, collects_by_hand
from memguard.evidence.cycles.cycle_breaks import Circle, find_circle
from memguard.evidence.graph_tracker import ForwardGraph
from memguard.evidence.graphs.function_contexts import function_of, kept_by, place_of_context
from memguard.evidence.interface import ProbeContext
from memguard.heap.attributes import is_tensor
from memguard.heap.frames import is_user_file, read_locals
from memguard.records.facts import NOWHERE, FreedByCollector, FunctionContextHolds, Place
from memguard.torch_objects.storages import storages_of

MIN_GRAPHS = 3
"""Forwards whose graph the collector freed, before the cycle is named."""
WAITING = 6
"""Graphs of so many earlier batches alive without a holder are worth one collection."""
TRIES = 3
"""Looks at the garbage that a name may take."""
MAX_GARBAGE = 200_000


@final
class CyclesProbe(CollectorProbe):
    """Hears the collector begin and end; a graph that dies in between was held by a cycle.

    The cycle is named once, by a collection that keeps what it finds for a moment.
    """

    def _prepare(self) -> None:
        self._graphs = self._seen = self._tried = 0

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        ledger = self.watch.ledger
        ledger.collecting = phase == "start"
        if not gc.isenabled() and not ledger.is_collected and collects_by_hand():
            ledger.is_collected = True

    def on_batch_end(self) -> None:
        """Counts the graphs that the collector freed, and names their cycle when there are enough."""
        ledger = self.watch.ledger
        self._graphs += ledger.collected - self._seen
        self._seen = ledger.collected
        waiting = self._waiting() if ledger.oldest < self.watch.batch - 1 else []
        # The collector freed some, or (once) so many wait that it may be its turn: only then is a look worth its time.
        worth = self._graphs or (not self._tried and len({mark.batch for mark in waiting}) >= WAITING)
        if waiting and worth and self._tried < TRIES:
            self._tried += 1
            self._name_cycle()

    def _waiting(self) -> list[ForwardGraph]:
        """Forwards of earlier batches whose graph ought to be gone: nothing is concluded from them alone."""
        watch = self.watch
        return [
            mark
            for mark in list(watch.ledger.live.values())
            if mark.batch < watch.batch - 1 and (mark.used or not mark.training)
        ]

    def _name_cycle(self) -> None:
        before, found = self._waiting(), look_at_garbage()
        freed = [mark for mark in before if not mark.alive] if found is not None else []
        self._graphs += len(freed)
        if found is None or not freed or self._graphs < MIN_GRAPHS:
            return
        self.unsubscribe("on_batch_end")
        if found.context is not None:
            name, attributes, place = found.context
            self.report(
                FunctionContextHolds(
                    **self.watch.now,
                    place=place,
                    function_name=name,
                    attributes=attributes,
                    bytes=found.bytes,
                    cycle=True,
                )
            )
        else:
            self.report(freed_by_collector(self.watch, found, graphs=self._graphs))


@final
@dataclass(slots=True)
class Garbage:
    """What one collection found: plain data."""

    objects: int = 0
    bytes: int = 0
    text: str | None = None
    place: Place = NOWHERE
    circle: Circle | None = None
    context: tuple[str, tuple[str, ...], Place] | None = None
    """A context that keeps its own output: its function, the attributes, where they are stored."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Classes and closures of the user's that the circle runs through."""
        return self.circle.parts if self.circle is not None else ()


def freed_by_collector(
    watch: ProbeContext,
    found: Garbage | Circle | None,
    *,
    graphs: int = 0,
    outputs: int = 0,
    circles: int = 0,
    nbytes: int | None = None,
    since: int = 0,
) -> FreedByCollector:
    """The fact about memory that only the collector frees.

    Args:
        watch: The run.
        found: The garbage, or the one circle of it that counts; None where the garbage could not be collected.
        graphs: Graphs that it freed.
        outputs: The same of inputs and outputs.
        circles: Circles of this kind.
        nbytes: What they held, if it is not what was found.
        since: Batch in which garbage was collected before.
    """
    return FreedByCollector(
        **watch.now,
        place=found.place if found is not None else NOWHERE,
        graphs=graphs,
        outputs=outputs,
        circles=circles,
        bytes=nbytes if nbytes is not None or found is None else found.bytes,
        cycle=found.text if found is not None else None,
        parts=found.parts if found is not None else (),
        since=since,
        is_collected=gc.isenabled() or watch.ledger.is_collected,
    )


def look_at_garbage(generation: int = 2) -> Garbage | None:
    """Collects once, keeping what is found long enough to examine it; everything is freed before this returns.

    Args:
        generation: The oldest that is looked through. Of all objects of the process that takes a tenth of a second.

    Returns:
        What was found; None where somebody else keeps garbage (``gc.set_debug``), for that is theirs.
    """
    if gc.garbage or gc.get_debug():
        return None
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect(generation)
    finally:
        gc.set_debug(0)
    if not gc.garbage:
        return Garbage()
    try:
        return _describe(gc.garbage) if len(gc.garbage) <= MAX_GARBAGE else Garbage(objects=len(gc.garbage))
    finally:
        gc.garbage.clear()
        gc.collect()  # what was kept counts among the oldest now


def _describe(garbage: list[Any]) -> Garbage:
    found = Garbage(objects=len(garbage))
    tensors = [obj for obj in garbage if is_tensor(obj)]
    found.bytes = sum(storages_of(tensors).values())
    numbers, known = {id(tensor) for tensor in tensors}, {id(obj) for obj in garbage}
    best = 2
    for obj in garbage:
        kind = type(obj)
        if issubclass(kind, torch.autograd.function.BackwardCFunction) and best > 0:
            if names := tuple(kept_by(obj)):  # its own output closes it
                best, function = 0, function_of(kind) or kind
                found.text = f"{function.__name__} ctx.{names[0]} <- {kind.__name__}"
                found.context = (function.__name__, names, place_of_context(function, names[0]))
        elif kind is types.FrameType and best > 1 and is_user_file(obj.f_code.co_filename):
            if not _leads_to(obj, numbers, known):
                continue  # the exception of an import, say, that was made while a model was built
            name = next((name for name, value in read_locals(obj).items() if id(value) in numbers), None)
            best, code = 1, obj.f_code
            found.place = Place(file=code.co_filename, line=obj.f_lineno, function=code.co_name, holder=name)
            found.text = f"a frame of {code.co_name}() and {f'its local {name}' if name else 'an exception in it'}"
    if best > 1 and (circle := find_circle(garbage)) is not None:
        found.circle, found.text, found.place = circle, circle.text, circle.place
    return found


def _leads_to(frame: types.FrameType, tensors: set[int], garbage: set[int]) -> bool:
    """Whether a frame's variables lead to a tensor that is garbage, by way of garbage alone."""
    waiting, seen = list(read_locals(frame).values()), {id(frame)}
    while waiting:
        obj = waiting.pop()
        if id(obj) in tensors:
            return True
        if id(obj) in garbage and id(obj) not in seen:
            seen.add(id(obj))
            waiting += gc.get_referents(obj)
    return False
