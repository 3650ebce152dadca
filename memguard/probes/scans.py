"""A few walks over everything user code holds: what grows, what is pinned, copies of weights, kept exceptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, final

from memguard.facts import CheckpointKept, ExceptionHolds, Fact, KeptOutputs, ModelCopies, ViewsPinStorage
from memguard.probes.bounded import is_bounded
from memguard.probes.census import Census, find_growth, take_census
from memguard.probes.copies import find_copies
from memguard.probes.holders import Survey
from memguard.probes.host_copies import is_on_host
from memguard.probes.interface import Probe, Watch
from memguard.probes.kept_exceptions import find_stored
from memguard.probes.owners import state_of
from memguard.probes.pins import Pin, find_pins
from memguard.probes.sizes import owned_storages, storages_of
from memguard.stats import Stage

SCANS = frozenset({10, 22, 200, 212, 2000, 2012})
"""Batches of a stage after which everything is walked; each costs some ten milliseconds."""
MIN_PIN_BYTES = 64 * 1024
PER_BATCH = 0.9
"""Elements a batch by which a container must grow."""


@final
class ScansProbe(Probe):
    """Walks twice, some batches apart, and compares: what grew with every batch is told, by the statement that adds."""

    name: ClassVar[str] = "scans"

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._count: dict[Stage, int] = {}
        self._last: dict[Stage, tuple[int, int | None, Census]] = {}
        self._pins: dict[tuple[str | None, int | None], frozenset[int]] = {}
        self._copies = 0
        self._exceptions: set[object] = set()

    def on_batch_end(self) -> None:
        """Walks at a few batches."""
        watch = self.watch
        count = self._count[watch.stage] = self._count.get(watch.stage, 0) + 1
        if count not in SCANS:
            return
        before = self._last.get(watch.stage)
        allocated = watch.record.allocated_end_bytes if watch.record is not None else None
        if before is not None and allocated is not None and before[1] is not None and allocated <= before[1]:
            return  # nothing grew, and what lies there was looked at
        owned = owned_storages(watch.models)
        for optimizer in watch.optimizers:
            owned.update(storages_of(state_of(optimizer)))
        parameters = [parameter for model in watch.models for parameter in model.parameters()]
        owned.update(storages_of(p.grad for p in parameters if p.grad is not None))
        survey = Survey(models=watch.models, extra=watch.extra_roots())
        if before is not None:
            self._tell_growth(survey, before[2], watch.batches - before[0])
        self._last[watch.stage] = (watch.batches, allocated, take_census(survey))
        self._tell_pins(find_pins(survey, ignore=owned, min_storage_bytes=MIN_PIN_BYTES))
        if watch.stage is Stage.TRAIN:
            self._tell_copies(survey, owned)
            self._tell_exceptions(survey, owned)

    def on_stage_end(self, stage: Stage) -> None:
        """A pass of evaluation ends: what grows within one is counted anew in the next."""
        if stage.evaluates:
            self._count.pop(stage, None)
            self._last.pop(stage, None)

    def _tell_growth(self, survey: Survey, before: Census, batches: int) -> None:
        watch = self.watch
        for growth in find_growth(survey, before, elements=PER_BATCH * batches, nbytes=1):
            place = growth.place
            where = (place.file, place.line)
            if where in watch.told:
                continue
            watch.told.add(where)
            if is_on_host(place):
                continue
            self.report(
                KeptOutputs(
                    batch=watch.batch,
                    stage=watch.stage,
                    place=place,
                    tensors=growth.elements,
                    first_batch=max(watch.batch - batches, 0),
                    bytes=growth.bytes,
                    bytes_per_batch=growth.bytes / batches,
                    bounded=is_bounded(place.file, place.line, place.holder),
                )
            )

    def _tell_pins(self, pins: tuple[Pin, ...]) -> None:
        watch = self.watch
        for pin in pins:
            where = (pin.place.file, pin.place.line)
            known = self._pins.get(where)
            self._pins[where] = pin.storages
            # Seen in two scans: what one batch holds for a moment is no pin.
            if known is None or where in watch.told or not known & pin.storages:
                continue
            watch.told.add(where)
            self.report(
                ViewsPinStorage(
                    batch=watch.batch,
                    stage=watch.stage,
                    place=pin.place,
                    views=pin.views,
                    used_bytes=pin.used_bytes,
                    pinned_bytes=pin.pinned_bytes,
                )
            )

    def _tell_copies(self, survey: Survey, owned: dict[int, int]) -> None:
        watch = self.watch
        found = find_copies(survey, watch.models, ignore=owned)
        # An optimizer that has not been seen to step yet owns its state all the same.
        copies = [c for c in found if c.bytes and "optim" not in f"{c.place.holder} {c.place.source}".lower()]
        if len(copies) <= self._copies:
            return
        self._copies = len(copies)
        wanted = [copy for copy in copies if copy.averaged]
        others = [copy for copy in copies if not copy.averaged]
        for group, averaged in ((others, False), (wanted, True)):
            loaded = [copy for copy in group if "load(" in (copy.place.source or "")]
            for copy in loaded:
                self.report(
                    CheckpointKept(
                        batch=watch.batch,
                        stage=watch.stage,
                        place=copy.place,
                        bytes=copy.bytes,
                        batches=self._count[watch.stage],
                    )
                )
            rest = [copy for copy in group if copy not in loaded]
            if rest:
                self.report(
                    ModelCopies(
                        batch=watch.batch,
                        stage=watch.stage,
                        place=rest[0].place,
                        copies=len(rest),
                        bytes=sum(copy.bytes for copy in rest),
                        holders=tuple(sorted({copy.place.holder for copy in rest if copy.place.holder})),
                        averaged=averaged,
                    )
                )

    def _tell_exceptions(self, survey: Survey, owned: dict[int, int]) -> None:
        for held in find_stored(survey, ignore=owned.__contains__):
            if held.place in self._exceptions:
                continue
            self._exceptions.add(held.place)
            self.report(
                ExceptionHolds(
                    batch=self.watch.batch,
                    stage=self.watch.stage,
                    place=held.place,
                    exception=held.exception,
                    handling=False,
                    names=held.names,
                    bytes=held.bytes,
                )
            )
