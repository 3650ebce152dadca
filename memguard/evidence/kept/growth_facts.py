"""Facts about containers that grow with every batch, and the same measured anew while memory grows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import final

import torch

from memguard.evidence.interface import Probe, ProbeContext
from memguard.evidence.kept.census import ContainerGrowth, GraphsBelow, find_growth
from memguard.evidence.kept.copies import copied_bytes
from memguard.evidence.kept.incremental_scan import MIN_PIN_BYTES
from memguard.evidence.kept.outputs import outlives_its_turn
from memguard.evidence.kept.views import RATIO, PinnedStorage, ReportedViews, find_pins
from memguard.evidence.naming.holders import HolderSearch
from memguard.evidence.naming.names import outgrew
from memguard.evidence.owners import state_of
from memguard.records.facts import GrowingParameters, KeptOnHost, KeptOutputs, Line, ModelCopies, RetainedGraphs
from memguard.records.stats import Stage
from memguard.source.bounds import Bound, bounds_of, is_cache, is_learned_from
from memguard.source.origins import is_on_host
from memguard.source.sites import remedy_at
from memguard.thresholds import NOTABLE_SHARE
from memguard.torch_objects.storages import storage_key, storages_of

MIN_ELEMENTS = 8
"""Elements by which a container must grow."""
PER_BATCH, MIN_BYTES_PER_BATCH = 0.9, 1024
"""Elements a batch by which it must grow, or bytes of tensors: a trajectory for every few batches."""
MIN_GRAPHS = 8
"""Elements that carry graphs, by which a container must grow, and optimizer steps that are made meanwhile."""
MIN_HOST_BYTES = 16 * 1024
"""A batch, on the host: less is a log of numbers."""
HOST_TIMES = 8
"""Times of what its tensors take, that all else takes in memory: an observation as an array, a value as a tensor."""
_ACCELERATORS = ("cuda", "xpu", "mps")
"""Devices whose tensors tell that they are there; a virtual one's look like the host's."""


@final
class GrownContainers:
    """Reports what grew, each statement once."""

    def __init__(self, probe: Probe, views: ReportedViews, steps_since: Callable[[int], int], told: set[Line]) -> None:
        self._watch, self._report, self._views, self._steps_since = probe.watch, probe.report, views, steps_since
        self._reported = told
        self._limited: set[object] = set()
        """Where containers grow that were told before they outgrew what their length is compared with."""
        self._lengths: dict[int, int] = {}
        """Of those that were met, by their identities: one that only grew since is told, whatever leads to it now."""

    def tell(self, survey: HolderSearch, before: Mapping[int, int], batches: int, owned: dict[int, int]) -> None:
        """Of each container the statement that adds to it, under the rule that fits what it holds."""
        watch = self._watch
        least = MIN_HOST_BYTES * batches
        state = set(storages_of(tensor for one in watch.optimizers for tensor in state_of(one)))
        trained = state | self._trained(survey)
        pins: tuple[PinnedStorage, ...] | None = None
        kept: list[KeptOutputs] = []
        copied = functools.partial(copied_bytes, models=watch.models, trained=trained)
        found = find_growth(survey, before, elements=MIN_ELEMENTS, host_bytes=least, copied=copied, owned=owned)
        for growth in found:
            elements = growth.elements * growth.alike
            is_light = elements < PER_BATCH * batches and growth.bytes < MIN_BYTES_PER_BATCH * batches
            if is_light and growth.graphs is None:
                continue
            place, where = growth.place, growth.place.where
            is_known = growth.length >= self._lengths.get(growth.number, growth.length + 1)
            self._lengths[growth.number] = growth.length
            is_of_told = any(fact.place == place for fact in kept)  # lists in one dict, say
            if (where in self._reported or is_known) and not is_of_told and not self._outgrew_what_limited(growth):
                continue
            if growth.newest and trained.issuperset(growth.newest):
                if not state.issuperset(growth.newest):  # an optimizer's own history has an end
                    new, nbytes = growth.elements, growth.bytes
                    self._report(
                        GrowingParameters(**watch.now, place=place, parameters=new, batches=batches, bytes=nbytes)
                    )
                continue
            self._reported.add(where)
            if growth.capacity is not None and not outgrew(growth.length, growth.capacity):
                self._limited.add(where)
            if growth.graphs is not None and growth.elements >= MIN_GRAPHS:
                if self._steps_since(watch.batches - batches) >= MIN_GRAPHS:
                    self._tell_graphs(growth, growth.graphs, batches)
                else:
                    del self._lengths[growth.number]
                    self._reported.discard(where)  # losses of one step, perhaps: to be seen once more
                continue
            if growth.is_module and watch.device not in ("cpu", "auto"):
                continue  # its weights lie on the device, below no name of their own
            elsewhere = growth.on_cpu and watch.device.startswith(_ACCELERATORS)
            mostly = HOST_TIMES * growth.bytes <= growth.plain_bytes * growth.elements * growth.alike
            on_host = mostly or elsewhere or growth.shared or is_on_host(place)
            if place.file is not None and (growth.from_worker or on_host):
                self._tell_kept_on_host(growth, batches)
            if on_host or (growth.copy_bytes and not self._tell_called_copies(growth)):
                continue
            if pins is None:
                pins = find_pins(survey, ignore=owned, min_storage_bytes=MIN_PIN_BYTES)
            pin = next((pin for pin in pins if _is_of(pin, growth)), None)
            if pin is not None and not growth.numbers:
                self._views.report_one(pin, grows=not self._is_bounded(growth))
                continue
            kept.append(self._kept_outputs(growth, batches))
        for fact in merge_adjacent(kept):
            self._report(fact)

    def _kept_outputs(self, growth: ContainerGrowth, batches: int) -> KeptOutputs:
        watch, place = self._watch, growth.place
        elements, passed = _all_of(growth, batches, watch)
        return KeptOutputs(
            **watch.now,
            place=place,
            tensors=elements,
            first_batch=max(watch.batch - passed, 0),
            bytes=growth.bytes * elements // growth.elements,
            bytes_per_batch=growth.bytes / batches,
            bounded=self._is_bounded(growth) or self._ends_with_its_turn(growth),
            learned_from=is_learned_from(place),
            what="{count} elements of several tensors" if len(growth.newest) > 1 else None,
            numbers=growth.numbers,
            weights=growth.weights,
            capacity=None if outgrew(growth.length, growth.capacity) else growth.capacity,
            cached=is_cache(place.file, place.line, place.holder),
            remedy=remedy_at(place),
        )

    def _tell_called_copies(self, growth: ContainerGrowth) -> bool:
        """As the opponents of self-play are: more come, unlike a population's, unless something bounds them.

        Those that nobody calls are found by their weights alone (`_tell_copies`).
        """
        watch, place = self._watch, growth.place
        if watch.stage is not Stage.TRAIN or self._is_bounded(growth):
            return False
        self._report(
            ModelCopies(
                **watch.now,
                place=place,
                copies=growth.length,
                bytes=growth.length * growth.copy_bytes,
                holders=(place.holder,) if place.holder else (),
                averaged=False,
            )
        )
        return True

    def _tell_graphs(self, growth: ContainerGrowth, graphs: GraphsBelow, batches: int) -> None:
        """What grows carries graphs that no forward's mark shows: of a part of the model, of its weights alone."""
        watch = self._watch
        elements = growth.length if graphs.everywhere else growth.elements
        passed = min(max(round(elements * batches / growth.elements), 1), watch.batch + 1)
        self._report(
            RetainedGraphs(
                **watch.now,
                place=growth.place,
                graphs=min(elements, passed),
                first_batch=watch.batch - passed + 1,
                last_batch=watch.batch,
                optimizer_steps=0,
                bytes=graphs.bytes * elements // growth.length or None,
                backward=not graphs.saved,
            )
        )

    def _tell_kept_on_host(self, growth: ContainerGrowth, batches: int) -> None:
        place, watch = growth.place, self._watch
        nbytes = growth.newest_bytes * growth.elements * growth.alike
        bounded = self._is_bounded(growth)
        _, passed = _all_of(growth, batches, watch)
        self._report(
            KeptOnHost(
                **watch.now,
                place=place,
                elements=growth.elements * growth.alike,
                bytes=nbytes,
                bytes_per_batch=nbytes / batches,
                first_batch=max(watch.batch - passed, 0),
                bounded=bounded,
                by_key=bounded and not self._is_bounded(growth, without=Bound.KEYED),
                from_workers=growth.from_worker,
                pinned=growth.pinned,
                capacity=growth.capacity if growth.length <= (growth.capacity or 0) else None,
            )
        )

    def _is_bounded(self, growth: ContainerGrowth, *, without: Bound | None = None) -> bool:
        place = growth.place
        bounds = bounds_of(place.file, place.line, place.holder, evaluates=self._watch.stage.evaluates)
        if outgrew(growth.length, growth.capacity):
            bounds &= ~Bound.MEASURED
        return bool(bounds if without is None else bounds & ~without)

    def _ends_with_its_turn(self, growth: ContainerGrowth) -> bool:
        watch, newest = self._watch, frozenset(growth.newest)
        return bool(newest) and not outlives_its_turn(
            lambda tensor: (key := storage_key(tensor)) is not None and key[0] in newest,
            models=watch.models,
            extra=watch.roots(),
        )

    def _outgrew_what_limited(self, growth: ContainerGrowth) -> bool:
        """Whether it was told as limited by a number that it left behind since: one that learning waits for."""
        where = growth.place.where
        if where not in self._limited or not outgrew(growth.length, growth.capacity):
            return False
        self._limited.discard(where)
        return not self._is_bounded(growth)

    def _trained(self, survey: HolderSearch) -> set[int]:
        """Storages of what optimizers step on, or will: a program that makes more of those trains them."""
        found: set[int] = set()
        new = (link.value for link in survey.snapshot.links if issubclass(type(link.value), torch.optim.Optimizer))
        for optimizer in (*self._watch.optimizers, *new):
            found.update(storages_of(parameter for group in optimizer.param_groups for parameter in group["params"]))
        return found


def _all_of(growth: ContainerGrowth, batches: int, watch: ProbeContext) -> tuple[int, int]:
    """The elements that came as those did which were seen to come, and in how many batches.

    All that it has, where so many can have come in batches of this stage; else it may have been filled before.
    """
    passed, newest = round(growth.length * batches / growth.elements), watch.number
    if watch.stage is Stage.TRAIN:
        newest = watch.batch  # batches of other kinds may have filled it as well
    if batches <= passed <= newest + 1:
        return growth.length, passed
    return growth.elements, batches


def _is_of(pin: PinnedStorage, growth: ContainerGrowth) -> bool:
    """Whether most of what grew is storage that views pin; the rest of a long container may show what these do not."""
    one, other = pin.place, growth.place
    is_same = (one.file, one.line, one.holder) == (other.file, other.line, other.holder)
    grown = growth.bytes if pin.held_bytes is None else min(growth.bytes, pin.held_bytes)  # as of a sample, or in truth
    return is_same and 2 * pin.pinned_bytes >= grown and RATIO * pin.used_bytes < pin.met_bytes


def merge_adjacent(kept: Iterable[KeptOutputs]) -> list[KeptOutputs]:
    """Of lists that are filled side by side the first that keeps much, with what all of them keep."""
    groups: list[list[KeptOutputs]] = []
    for fact in kept:
        group = next((group for group in groups if any(_are_one(fact, other) for other in group)), None)
        if group is None:
            groups.append(group := [])
        group.append(fact)
    return [_joined(sorted(group, key=lambda fact: fact.place.line or 0)) for group in groups]


def _joined(group: list[KeptOutputs]) -> KeptOutputs:
    nbytes = sum(fact.bytes for fact in group)
    lead = next(fact for fact in group if fact.bytes >= NOTABLE_SHARE * nbytes)  # no list of labels beside pictures
    holders = dict.fromkeys(fact.place.holder or "" for fact in group if fact.place != lead.place)
    return replace(
        lead,
        tensors=sum(fact.tensors for fact in group),
        first_batch=min(fact.first_batch for fact in group),
        bytes=nbytes,
        bytes_per_batch=sum(fact.bytes_per_batch for fact in group),
        what=next((fact.what for fact in group if fact.what), None),
        beside=tuple(holders),
    )


def _are_one(fact: KeptOutputs, other: KeptOutputs) -> bool:
    alike = (fact.stage, fact.bounded, fact.numbers) == (other.stage, other.bounded, other.numbers)
    return alike and fact.cached is other.cached and (fact.place == other.place or fact.place.is_beside(other.place))
