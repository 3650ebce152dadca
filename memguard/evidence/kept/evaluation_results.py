"""Results kept from one evaluation to the next, of which a run makes few."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from memguard.evidence.interface import Probe, ProbeContext
from memguard.evidence.kept.census import ContainerGrowth, find_growth
from memguard.evidence.kept.copies import find_copies
from memguard.evidence.naming.capacities import outgrew
from memguard.evidence.naming.holders import HolderSearch
from memguard.evidence.owners import state_of
from memguard.records.facts import Fact, KeptResults
from memguard.records.stats import Stage
from memguard.source.bounds import LASTING, Bound, bounds_of
from memguard.source.origins import is_on_host
from memguard.torch_objects.storages import owned_storages, storages_of

APART, APART_SHARE = 8, 0.125
"""Batches between two ends that are looked at, and their share of all so far: evaluations may be short and many."""
LEAST, DEVICE_SHARE = 1024**2, 1e-3
"""Bytes, or so much of the device if that is more, by which the memory must have grown from end to end."""
EXPLAINED = 0.5
"""Share of that growth for which a container must account."""
FORMER = 2
"""Times as many elements as are new must have been there before: it grew in the evaluations before these as well."""
WALKS = 6
MOST_ELEMENTS = 4
"""For each evaluation, to be a result of the whole of it; what grows with batches is told as that."""
_ACCELERATORS = ("cuda", "xpu", "mps")


@final
class KeptResultsProbe(Probe):
    """Compares ends of evaluations; where memory grew from one to the next, goes over everything to see what did."""

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._ends = 0
        self._due = 0
        self._floor: tuple[int, int, int] | None = None
        """Bytes at the last end that was looked at, how many ends and how many batches there were until then."""
        self._lengths: dict[int, int] | None = None
        self._walks = 0

    def on_stage_end(self, stage: Stage) -> None:
        """One evaluation is over, and what it came to has been stored."""
        watch = self.watch
        if not stage.evaluates or self._walks >= WALKS:
            return
        self._ends += 1
        if watch.batches < self._due:
            return
        self._due = watch.batches + max(APART, int(APART_SHARE * watch.batches))
        record = watch.record
        end = None if record is None else record.allocated_end_bytes or record.host_rss_bytes
        if end is None:
            return
        then, self._floor = self._floor, (end, self._ends, watch.batches)
        grown = end - then[0] if then is not None else 0
        before, self._lengths = self._lengths, None
        if then is None or grown < max(LEAST, int(DEVICE_SHARE * (watch.device_total_bytes or 0))):
            return
        self._walks += 1
        survey = HolderSearch(models=watch.models, extra=watch.roots())
        self._lengths = survey.snapshot.lengths()
        if before is not None:
            self._tell(survey, before, grown, self._ends - then[1], watch.batches - then[2])

    def remove(self) -> None:
        """Forgets what was counted."""
        self._lengths = None

    def _tell(self, survey: HolderSearch, before: dict[int, int], grown: int, ends: int, batches: int) -> None:
        watch = self.watch
        for growth in find_growth(survey, before, elements=1, nbytes=int(EXPLAINED * grown)):
            if not _is_of_ends(growth, ends) or not self._is_result(survey, growth):
                continue
            place = growth.place
            watch.told.add((place.file, place.line))
            bounds = bounds_of(place.file, place.line, place.holder) & LASTING  # no function's end was seen to come
            if outgrew(growth.length, growth.capacity):
                bounds &= ~Bound.MEASURED
            self.report(
                KeptResults(
                    **watch.now,
                    place=place,
                    results=growth.length,
                    bytes=growth.bytes * growth.length // growth.elements,
                    bytes_per_evaluation=growth.bytes / ends,
                    batches_per_evaluation=batches / ends,
                    bounded=bool(bounds),
                )
            )

    def _is_result(self, survey: HolderSearch, growth: ContainerGrowth) -> bool:
        """Whether it is neither told already, nor the weights of a model, nor in the host's memory."""
        watch, place = self.watch, growth.place
        if (place.file, place.line) in watch.told or place.line is None or not growth.newest:
            return False
        if is_on_host(place) or (growth.on_cpu and watch.device.startswith(_ACCELERATORS)):
            return False
        owned = owned_storages(watch.models)
        for optimizer in watch.optimizers:
            owned.update(storages_of(state_of(optimizer)))
        if any(key in owned for key in growth.newest):
            return False
        copies = {(copy.place.file, copy.place.line) for copy in find_copies(survey, watch.models, ignore=owned)}
        return (place.file, place.line) not in copies


def _is_of_ends(growth: ContainerGrowth, ends: int) -> bool:
    """Whether few elements came with each evaluation, and in those before as well."""
    return growth.elements <= MOST_ELEMENTS * ends and growth.length >= (1 + FORMER) * growth.elements
