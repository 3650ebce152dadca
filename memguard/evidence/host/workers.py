"""What each DataLoader worker ends up with: copies of a dataset's Python objects, caches that its methods fill."""

from __future__ import annotations

import collections
from typing import Any, final

from memguard.evidence.host.datasets import have_workers, place_of_attribute, readings, unbounded_caches, unwrap
from memguard.evidence.interface import Probe
from memguard.heap.attributes import is_user_class
from memguard.heap.containers import length_of
from memguard.heap.host_sizes import host_size
from memguard.records.facts import Place, WorkerObjects
from memguard.records.stats import Stage
from memguard.source.bounds import NO_CACHE, bounds_of

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
            for dataset in unwrap(reading.dataset) if reading.workers else ():
                self._look(dataset, reading.workers)

    def _look(self, dataset: Any, workers: int) -> None:
        held: dict[str, Any] = {}
        for kind in reversed(type(dataset).__mro__[:-1]):  # what stands on the class is kept for the whole process
            held.update(vars(kind) if is_user_class(kind) else ())
        held.update(vars(dataset))
        for name, value in held.items():
            if name.startswith("__") or not issubclass(type(value), _CONTAINERS):
                continue
            place, grows = place_of_attribute(dataset, name, "set" if issubclass(type(value), set) else "list")
            if grows and not bounds_of(place.file, place.line, f"self.{name}") & NO_CACHE:
                self._tell(place, workers, 0, 0, grows=True)
            else:
                self._weigh(value, place, workers)
        for place in unbounded_caches(dataset):
            self._tell(place, workers, 0, 0, grows=True)

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
