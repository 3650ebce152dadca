"""A few rounds over everything user code holds: what grows, what is pinned, copies of weights, kept exceptions.

Long because one walk names what all of them suspect, and what is told as one is not told as another.
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Callable
from typing import ClassVar, final

from torch import nn

from memguard.facts import (
    ExceptionHolds,
    Fact,
    GrowingParameters,
    KeptOnHost,
    KeptOutputs,
    ModelCopies,
    RetainedGraphs,
    ViewsPinStorage,
)
from memguard.module_parts import gradients_of, parameters_of
from memguard.probes.interface import Probe, Watch
from memguard.probes.kept.census import Census, Growth, count_back, find_growth
from memguard.probes.kept.copies import copied_bytes, find_copies
from memguard.probes.kept.graphs_below import GraphsBelow
from memguard.probes.kept.joined import handed_facts, swollen_facts
from memguard.probes.kept.kept_exceptions import find_stored
from memguard.probes.kept.piles import Piles
from memguard.probes.kept.pins import RATIO, Pin, find_pins, used_state
from memguard.probes.kept.rounds import BEGINS, Rounds
from memguard.probes.naming.capacities import outgrew
from memguard.probes.naming.holders import Survey
from memguard.probes.objects.frames import user_frames
from memguard.probes.objects.sizes import owned_storages, storages_of
from memguard.probes.owners import state_of
from memguard.source.beside import as_one
from memguard.source.emptied.bounded import is_bounded
from memguard.source.emptied.caches import is_cache
from memguard.source.host_copies import is_on_host
from memguard.stats import Stage

SLICE_STEPS, LAST_SLICE_STEPS = 128, 3_000
"""What one batch spends on a round, and the end of a stage on one that is not over: about 5 microseconds each. Counted,
so that a slow machine finds after as many batches what a fast one finds."""
LATE_MODELS = 4
"""Models that are first called after the first round, and for each of which is looked whether it has copies."""
MIN_PIN_BYTES = 64 * 1024
MIN_ELEMENTS = 8
"""Elements by which a container must grow."""
PER_BATCH, MIN_BYTES_PER_BATCH = 0.9, 1024
"""Elements a batch by which it must grow, or bytes of tensors: a trajectory for every few batches."""
MIN_GRAPHS = 8
"""Elements that carry graphs, by which a container must grow, and optimizer steps that are made meanwhile."""
MIN_HOST_BYTES = 16 * 1024
"""A batch, on the host: less is a log of numbers."""
MIN_TOLD_AGAIN = 4
"""Storages that a list which has got longer has in common with what was told of it."""
LARGER = 2
"""Times what was told of that views must pin to be told of once more, where the floor was seen to rise since."""
_ACCELERATORS = ("cuda", "xpu", "mps")
"""Devices whose tensors tell that they are there; a virtual one's look like the host's."""


@final
class ScansProbe(Probe):
    """Goes over everything in rounds, a slice in each batch, and compares: what grew with every batch is told.

    A round only counts. What it suspects is looked at by one real walk, which names the statement that adds.
    """

    name: ClassVar[str] = "scans"

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._stages: dict[Stage, Rounds] = {}
        self._passes: dict[Stage, int] = {}
        self._ended: dict[Stage, tuple[Rounds, int]] = {}
        """Of each stage that evaluates, the last pass's rounds, and the batches that had been at its end."""
        self._counted = 0
        """Batches that had been at the last look."""
        self._explained: set[int] = set()
        self._steps: deque[tuple[int, int]] = deque(maxlen=256)
        """Batches and optimizer steps so far, at the slices of the last rounds."""
        self._rose: int | None = None
        """When the floor was last seen to rise, and rounds were asked for."""
        self._views: dict[tuple[str | None, int | None], ViewsPinStorage] = {}
        """What was told of views, by their lines."""
        self._piles = Piles()
        self._exceptions: set[object] = set()
        self._limited: set[object] = set()
        """Where containers grow that were told before they outgrew what their length is compared with."""
        self._evaluated: frozenset[int] = frozenset()
        """Copies that were there in evaluation: if they still are in training, they are no weights put aside for it."""
        self._late_models = 0
        self._is_joined = False
        """Whether a model joined since the last look: what it was loaded from may still be there."""
        self._jumps = 0

    def on_model(self, model: nn.Module) -> None:
        """One more is called; what has its shapes was no copy before."""
        if self.watch.batches >= BEGINS[0] and self._late_models < LATE_MODELS:
            self._late_models += 1
            self._is_joined = True

    def on_batch_end(self) -> None:
        """Goes on with the round that is under way, or begins one that is due."""
        watch = self.watch
        rounds = self._stages.get(watch.stage)
        if rounds is None:
            rounds = self._stages[watch.stage] = self._next_pass(watch.stage)
        rounds.count += 1
        rounds.batches += watch.batches - self._counted
        self._counted = watch.batches
        if watch.rose != self._rose and watch.stage is Stage.TRAIN:
            self._rose = watch.rose
            rounds.ask()
        if rounds.is_due():
            rounds.begin(watch, MIN_HOST_BYTES)
        if rounds.is_open:
            self._go_on(rounds, SLICE_STEPS)
        if watch.stage is Stage.TRAIN:
            fresh, self._evaluated = self._evaluated - self._explained, frozenset()
            if fresh or self._is_joined or watch.jumps > self._jumps:
                self._is_joined, self._jumps = False, watch.jumps
                self._explained |= fresh
                self._look({}, frozenset())

    def on_stage_end(self, stage: Stage) -> None:
        """A pass ends: in evaluation what grows within one is counted anew in another, later ones seldom."""
        rounds = self._stages.get(stage)
        if rounds is None:
            return
        if (stage.evaluates and rounds.is_unseen) or (stage is Stage.TRAIN and self._has_grown_a_model(rounds)):
            rounds.begin(self.watch, MIN_HOST_BYTES)
        if rounds.is_open and (rounds.lengths or stage.evaluates):
            self._go_on(rounds, LAST_SLICE_STEPS)
        if stage.evaluates:
            self._passes[stage] = self._passes.get(stage, 0) + 1
            self._ended[stage] = self._stages.pop(stage), self.watch.batches

    def _has_grown_a_model(self, rounds: Rounds) -> bool:
        """Whether as much came as a model's weights take: with each epoch a copy of them may come."""
        sizes = [sum(storages_of(parameters_of(model)).values()) for model in self.watch.models]
        return bool(sizes) and rounds.is_worth_one_more(self.watch, max(sizes))

    def _next_pass(self, stage: Stage) -> Rounds:
        """Of evaluation; what was counted in the last pass is not forgotten, for what nobody clears grows over all."""
        before, then = self._ended.get(stage, (None, 0))
        passes = self._passes.get(stage, 0)
        return Rounds(rests=bool(passes & (passes - 1)), before=before, away=self.watch.batches - 1 - then)

    def _go_on(self, rounds: Rounds, steps: int) -> None:
        watch = self.watch
        self._steps.append((watch.batches, watch.optimizer_steps))
        suspicions = rounds.advance(watch, list(user_frames(sys._getframe(1))), steps)
        if suspicions is None:
            return
        if suspicions.swollen:
            for fact in swollen_facts(watch, suspicions.swollen):
                self.report(fact)
        if handed := suspicions.handed - self._explained:
            self._explained |= handed
            for fact in handed_facts(watch, handed):
                self.report(fact)
        fresh = suspicions.exceptions - self._explained
        if watch.stage is Stage.TRAIN:
            fresh |= suspicions.copies - self._explained
        elif copies := suspicions.copies - self._explained:
            self._evaluated |= copies
            watch.look_closely(1, surely=True)
        pinned = rounds.confirmed - self._explained
        rounds.waiting |= suspicions.grown
        if (fresh or rounds.waiting or pinned) and not (rounds.has_looked and rounds.is_open):
            grown, rounds.waiting, rounds.has_looked = rounds.waiting, {}, True
            self._explained |= fresh | pinned
            self._look(grown, rounds.confirmed)

    def _look(self, grown: dict[int, tuple[int, int]], pinned: frozenset[int]) -> None:
        """Names what is suspected, by a walk over everything at once."""
        watch = self.watch
        wanted = owned_storages(watch.models)
        parameters = [parameter for model in watch.models for parameter in parameters_of(model)]
        wanted.update(storages_of(gradients_of(parameters)))
        owned = dict(wanted)
        for optimizer in watch.optimizers:
            owned.update(storages_of(state_of(optimizer)))
            wanted.update(used_state(optimizer))
        survey = Survey(models=watch.models, extra=watch.roots(), stage=watch.stage, calling=watch.calling)
        if watch.stage is Stage.TRAIN:
            self._tell_copies(survey, owned)  # before what grows, for copies that pile up grow as well
        if grown:
            before = count_back(survey, {number: length for number, (length, _) in grown.items()})
            batches = max(watch.batches - max(batch for _, batch in grown.values()), 1)
            self._tell_growth(survey, before, batches, owned)
        if pinned:
            self._tell_pins(find_pins(survey, ignore=wanted, min_storage_bytes=MIN_PIN_BYTES), pinned)
        self._tell_exceptions(survey, owned)

    def _tell_growth(self, survey: Survey, before: Census, batches: int, owned: dict[int, int]) -> None:
        watch = self.watch
        least = MIN_HOST_BYTES * batches
        state = set(storages_of(tensor for one in watch.optimizers for tensor in state_of(one)))
        trained = state | self._trained()
        pins: tuple[Pin, ...] | None = None
        kept: list[KeptOutputs] = []
        copied = functools.partial(copied_bytes, models=watch.models, trained=trained)
        found = find_growth(
            survey, before, elements=MIN_ELEMENTS, nbytes=1, host_bytes=least, copied=copied, owned=owned
        )
        for growth in found:
            is_light = growth.elements < PER_BATCH * batches and growth.bytes < MIN_BYTES_PER_BATCH * batches
            if is_light and growth.graphs is None:
                continue
            place = growth.place
            where = (place.file, place.line)
            if where in watch.told and not self._outgrew_what_limited(growth):
                continue
            if growth.newest and trained.issuperset(growth.newest):
                if not state.issuperset(growth.newest):  # an optimizer's own history has an end
                    self._tell_trained(growth, batches)
                continue
            watch.told.add(where)
            if growth.capacity is not None and not outgrew(growth.length, growth.capacity):
                self._limited.add(where)
            if growth.graphs is not None and growth.elements >= MIN_GRAPHS:
                if self._steps_since(watch.batches - batches) >= MIN_GRAPHS:
                    self._tell_graphs(growth, growth.graphs, batches)
                else:
                    watch.told.discard(where)  # losses of one step, perhaps: to be seen once more
                continue
            elsewhere = growth.on_cpu and watch.device.startswith(_ACCELERATORS)
            on_host = growth.bytes <= 0 or elsewhere or growth.shared or is_on_host(place)
            if place.file is not None and (growth.from_worker or on_host):
                self._tell_kept_on_host(growth, batches)
            if on_host or (growth.copy_bytes and not self._tell_called_copies(growth)):
                continue
            if pins is None:
                pins = find_pins(survey, ignore=owned, min_storage_bytes=MIN_PIN_BYTES)
            pin = next((pin for pin in pins if _is_of(pin, growth)), None)
            if pin is not None and not growth.numbers:
                self._report_pin(pin, grows=not self._is_bounded(growth))
                continue
            kept.append(self._kept_outputs(growth, batches))
        for fact in as_one(kept):
            watch.kept.append(fact)
            self.report(fact)

    def _kept_outputs(self, growth: Growth, batches: int) -> KeptOutputs:
        watch, place = self.watch, growth.place
        elements, passed = _all_of(growth, batches, watch)
        return KeptOutputs(
            batch=watch.batch,
            stage=watch.stage,
            place=place,
            tensors=elements,
            first_batch=max(watch.batch - passed, 0),
            bytes=growth.bytes * elements // growth.elements,
            bytes_per_batch=growth.bytes / batches,
            bounded=self._is_bounded(growth),
            what="elements of several tensors" if len(growth.newest) > 1 else None,
            numbers=growth.numbers,
            cached=is_cache(place.file, place.line, place.holder),
        )

    def _tell_trained(self, growth: Growth, batches: int) -> None:
        """No warning by itself: a network may grow on purpose, and MG501 says so where it will not fit."""
        watch = self.watch
        self.report(
            GrowingParameters(
                batch=watch.batch,
                stage=watch.stage,
                place=growth.place,
                parameters=growth.elements,
                batches=batches,
                bytes=growth.bytes,
            )
        )

    def _tell_called_copies(self, growth: Growth) -> bool:
        """As the opponents of self-play are: more come, unlike a population's, unless something bounds them.

        Those that nobody calls are found by their weights alone (`_tell_copies`).
        """
        watch, place = self.watch, growth.place
        if watch.stage is not Stage.TRAIN or self._is_bounded(growth):
            return False
        self.report(
            ModelCopies(
                batch=watch.batch,
                stage=watch.stage,
                place=place,
                copies=growth.length,
                bytes=growth.length * growth.copy_bytes,
                holders=(place.holder,) if place.holder else (),
                averaged=False,
            )
        )
        return True

    def _steps_since(self, batches: int) -> int:
        """Optimizer steps since so many batches had been."""
        then = next((steps for seen, steps in self._steps if seen >= batches), self.watch.optimizer_steps)
        return self.watch.optimizer_steps - then

    def _tell_graphs(self, growth: Growth, graphs: GraphsBelow, batches: int) -> None:
        """What grows carries graphs that no forward's mark shows: of a part of the model, of its weights alone."""
        watch = self.watch
        elements = growth.length if graphs.everywhere else growth.elements
        passed = min(max(round(elements * batches / growth.elements), 1), watch.batch + 1)
        self.report(
            RetainedGraphs(
                batch=watch.batch,
                stage=watch.stage,
                place=growth.place,
                graphs=min(elements, passed),
                first_batch=watch.batch - passed + 1,
                last_batch=watch.batch,
                optimizer_steps=0,
                bytes=graphs.bytes * elements // growth.length or None,
                backward=not graphs.saved,
            )
        )

    def _tell_kept_on_host(self, growth: Growth, batches: int) -> None:
        place, watch = growth.place, self.watch
        nbytes = growth.newest_bytes * growth.elements
        bounded = self._is_bounded(growth, by_function=False)
        self.report(
            KeptOnHost(
                batch=watch.batch,
                stage=watch.stage,
                place=place,
                elements=growth.elements,
                bytes=nbytes,
                bytes_per_batch=nbytes / batches,
                kind=growth.kind,
                bounded=bounded,
                by_key=bounded and not self._is_bounded(growth, by_function=False, by_key=False),
                from_workers=growth.from_worker,
                pinned=growth.pinned,
                capacity=growth.capacity if growth.length <= (growth.capacity or 0) else None,
            )
        )

    def _is_bounded(self, growth: Growth, *, by_function: bool = True, by_key: bool = True) -> bool:
        place = growth.place
        return is_bounded(
            place.file,
            place.line,
            place.holder,
            evaluates=self.watch.stage.evaluates,
            by_length=not outgrew(growth.length, growth.capacity),
            by_function=by_function,
            by_key=by_key,
        )

    def _outgrew_what_limited(self, growth: Growth) -> bool:
        """Whether it was told as limited by a number that it left behind since: one that learning waits for."""
        where = (growth.place.file, growth.place.line)
        if where not in self._limited or not outgrew(growth.length, growth.capacity):
            return False
        self._limited.discard(where)
        return not self._is_bounded(growth, by_function=growth.bytes > 0)

    def _tell_pins(self, pins: tuple[Pin, ...], known: frozenset[int]) -> None:
        watch = self.watch
        for pin in pins:
            where = (pin.place.file, pin.place.line)
            told = self._views.get(where)
            if told and told.since != watch.rises_since and pin.pinned_bytes >= LARGER * told.pinned_bytes:
                self._report_pin(pin, grows=told.grows)
            if where in watch.told or not known & pin.storages:
                continue
            if any(is_told(storages, pin.storages) for storages in watch.pinned):
                continue  # where they were collected: a list that is handed on, or has got longer
            watch.told.add(where)
            self._report_pin(pin, grows=False)

    def _report_pin(self, pin: Pin, *, grows: bool) -> None:
        self.watch.pinned.append(pin.storages)
        self._views[pin.place.file, pin.place.line] = fact = ViewsPinStorage(
            batch=self.watch.batch,
            stage=self.watch.stage,
            place=pin.place,
            views=pin.views,
            used_bytes=pin.used_bytes,
            pinned_bytes=pin.pinned_bytes,
            grows=grows,
            since=self.watch.rises_since,
        )
        self.report(fact)

    def _trained(self) -> set[int]:
        """Storages of what optimizers step on: a program that makes more of those trains them."""
        found: set[int] = set()
        for optimizer in self.watch.optimizers:
            found.update(storages_of(parameter for group in optimizer.param_groups for parameter in group["params"]))
        return found

    def _tell_copies(self, survey: Survey, owned: dict[int, int]) -> None:
        watch = self.watch
        found = find_copies(survey, watch.models, ignore=owned)
        for fact in self._piles.facts(found, survey.frames, batch=watch.batch, stage=watch.stage):
            self.report(fact)

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


def _all_of(growth: Growth, batches: int, watch: Watch) -> tuple[int, int]:
    """The elements that came as those did which were seen to come, and in how many batches.

    All that it has, where so many can have come in training until now; else it may have been filled before.
    """
    passed = round(growth.length * batches / growth.elements)
    if watch.stage is Stage.TRAIN and batches <= passed <= watch.batch + 1:
        return growth.length, passed
    return growth.elements, batches


def _is_of(pin: Pin, growth: Growth) -> bool:
    """Whether most of what grew is storage that views pin; the rest of a long container may show what these do not."""
    one, other = pin.place, growth.place
    is_same = (one.file, one.line, one.holder) == (other.file, other.line, other.holder)
    grown = growth.bytes if pin.held_bytes is None else min(growth.bytes, pin.held_bytes)  # as of a sample, or in truth
    return is_same and 2 * pin.pinned_bytes >= grown and RATIO * pin.used_bytes < pin.met_bytes


def is_told(told: frozenset[int], storages: frozenset[int]) -> bool:
    """Whether most of either are among the others; a few may be others by now, at an address that came again."""
    common = len(told & storages)
    return 2 * common >= len(storages) or (common >= MIN_TOLD_AGAIN and 2 * common >= len(told))
