"""What each DataLoader worker ends up with: copies of a dataset's Python objects, caches that its methods fill."""

from __future__ import annotations

import collections
from typing import Any, final

from memguard.evidence.host.datasets import have_workers, place_of_attribute, readings
from memguard.evidence.host.fetching import Fetching
from memguard.evidence.interface import Probe
from memguard.heap.attributes import fields_of, is_user_class, mro_of, namespace_of
from memguard.heap.containers import length_of
from memguard.heap.host_sizes import host_size
from memguard.records.facts import Place, WorkerObjects
from memguard.records.stats import Stage
from memguard.source.bounds import NO_CACHE, bounds_of
from memguard.source.model import Sources
from memguard.source.name_query import NameQuery, SearchContext
from memguard.source.search import find_statement

LOOK = 4
"""The batch after which the datasets are looked at."""
WITHOUT = 64
"""Batches without workers, after which only another stage makes it look again."""
MIN_ELEMENTS = 5_000
MIN_OBJECTS, OBJECT_BYTES = 100_000, 48
"""Objects below a shorter container, such as trees or records, and what the smallest of them take."""
MIN_BYTES = 1024**2
_CONTAINERS: tuple[type, ...] = (list, dict, tuple, set, collections.deque)


@final
class WorkersProbe(Probe):
    """Looks once at the datasets that workers read."""

    def _prepare(self) -> None:
        self._batches = self._without = 0

    def on_stage_start(self, stage: Stage) -> None:
        """Its loader may have workers."""
        self._without = 0
        if self._batches < LOOK:
            self.hear("on_batch_end")

    def on_batch_end(self) -> None:
        """Looks when the first workers are at work."""
        if not have_workers():
            self._without += 1
            if self._without >= WITHOUT:
                self.unsubscribe("on_batch_end")
            return
        self._batches += 1
        if self._batches < LOOK:
            return
        self.unsubscribe("on_batch_end")
        for reading in readings():
            if reading.workers:
                self._look(reading.dataset, reading.workers)

    def _look(self, dataset: Any, workers: int) -> None:
        fetching = Fetching(dataset)
        for one in fetching.objects:
            held: dict[str, Any] = {}
            for kind in reversed(mro_of(type(one))):  # what stands on the class is kept for the whole process
                held.update(namespace_of(kind) if is_user_class(kind) else ())
            held.update(fields_of(one))
            for name, value in held.items():
                if not name.startswith("__") and issubclass(type(value), _CONTAINERS):
                    place, grows = place_of_attribute(one, name, _kind_of(value))
                    if not (grows and self._fills(fetching, place, f"self.{name}", workers)):
                        self._weigh(value, place, workers)
        for (file, name), value in fetching.variables.items():
            query = NameQuery(name=name, file=file, kinds=(_kind_of(value), "tensor"))
            statement = find_statement(query, [file], Sources(), SearchContext(graph=False, numbers=True))
            if statement is not None and statement.grows:
                self._fills(fetching, statement.place(name), f"module.{name}", workers)
        for place in fetching.remembered:
            self._tell(place, workers, 0, 0, grows=True)

    def _fills(self, fetching: Fetching, place: Place, holder: str, workers: int) -> bool:
        """Tells of what fetching samples only ever adds to."""
        if place.function not in fetching.functions or bounds_of(place.file, place.line, holder) & NO_CACHE:
            return False
        self._tell(place, workers, 0, 0, grows=True)
        return True

    def _weigh(self, value: Any, place: Place, workers: int) -> None:
        """Tells of many objects: elements, or what hangs below a few."""
        length, size = length_of(value), host_size(value)
        nbytes = size.bytes
        if length < MIN_ELEMENTS:
            length = size.objects
            nbytes = max(nbytes, length * OBJECT_BYTES)
            if length < MIN_OBJECTS:
                return
        if nbytes >= MIN_BYTES:
            self._tell(place, workers, length, nbytes, grows=False)

    def _tell(self, place: Any, workers: int, elements: int, nbytes: int, *, grows: bool) -> None:
        self.report(
            WorkerObjects(**self.watch.now, place=place, workers=workers, elements=elements, bytes=nbytes, grows=grows)
        )


def _kind_of(value: object) -> str:
    return "set" if issubclass(type(value), set) else "list"
