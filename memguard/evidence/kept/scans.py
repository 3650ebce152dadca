"""Scans of everything that user code holds: growth, pinned storages, copies of weights, kept exceptions."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from typing import final

from torch import nn

from memguard.evidence.graphs.graph_holders import is_state
from memguard.evidence.interface import Probe, ProbeContext
from memguard.evidence.kept.copies import CopyGroups, find_copies
from memguard.evidence.kept.exceptions import find_stored
from memguard.evidence.kept.growth_facts import MIN_HOST_BYTES, GrownContainers
from memguard.evidence.kept.incremental_scan import BEGINS, MIN_PIN_BYTES, ScanSchedule
from memguard.evidence.kept.views import ReportedViews, find_pins, used_state
from memguard.evidence.naming.holders import Holder
from memguard.evidence.owners import owned_by
from memguard.heap.containers import length_of, newest_of
from memguard.heap.frames import user_frames
from memguard.heap.history import ObjectGrowth
from memguard.heap.host_sizes import size_of
from memguard.records.facts import Fact, KeptOnHost, KeptOutputs, Line, Place, RetainedGraphs
from memguard.records.facts.storages import OF_BATCHES
from memguard.records.stats import Stage
from memguard.source.bounds import bounds_of, is_made_anew
from memguard.source.expressions import symbol_of
from memguard.source.fate import Fate, fate_of
from memguard.source.origins import is_on_host
from memguard.source.stores import is_new_item, keeps_a_slice
from memguard.torch_objects.module_parts import parameters_of
from memguard.torch_objects.storages import storages_of

SLICE_STEPS, LAST_SLICE_STEPS = 128, 3_000
"""What one batch spends on a round, and the end of a stage on one that is not over: about 5 microseconds each. Counted,
so that a slow machine finds after as many batches what a fast one finds."""
LATE_MODELS = 4
"""Models that are first called after the first round, and for each of which is looked whether it has copies."""


@final
class ScansProbe(Probe):
    """Goes over everything in rounds, a slice in each batch, and compares: what grew with every batch is told.

    A round only counts. What it suspects is looked at by one real walk, which names the statement that adds.
    """

    def _prepare(self) -> None:
        self._stages: dict[Stage, ScanSchedule] = {}
        self._passes: dict[Stage, int] = {}
        self._ended: dict[Stage, tuple[ScanSchedule, int]] = {}
        """Of each stage that evaluates, the last pass's rounds, and the batches that had been at its end."""
        self._counted = 0
        """Batches that had been at the last look."""
        self._explained: set[int] = set()
        self._steps: deque[tuple[int, int]] = deque(maxlen=256)
        """Batches and optimizer steps so far, at the slices of the last rounds."""
        self._rose: int | None = None
        """When the floor was last seen to rise, and rounds were asked for."""
        self._reported: set[Line] = set()
        """Statements that a fact of this probe is about."""
        self._views = ReportedViews(self, self._reported)
        self._grown = GrownContainers(self, self._views, self._steps_since, self._reported)
        self._piles = CopyGroups()
        self._exceptions: set[object] = set()
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
        watch, stage = self.watch, self.watch.stage
        rounds = self._stages.get(stage)
        if rounds is None:
            rounds = self._stages[stage] = self._next_pass(stage)
        rounds.count += 1
        rounds.batches += watch.batches - self._counted
        self._counted = watch.batches
        if watch.rose != self._rose and stage is Stage.TRAIN:
            self._rose = watch.rose
            rounds.ask()
        if rounds.is_due():
            rounds.begin(watch, MIN_HOST_BYTES)
        if rounds.is_open:
            self._go_on(rounds, SLICE_STEPS)
        if (self._evaluated or self._is_joined or watch.jumps > self._jumps) and stage is Stage.TRAIN:
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
        if rounds.is_open and (rounds.history.rounds > 1 or stage.evaluates):
            self._go_on(rounds, LAST_SLICE_STEPS)
        if stage.evaluates:
            self._passes[stage] = self._passes.get(stage, 0) + 1
            self._ended[stage] = self._stages.pop(stage), self.watch.batches

    def _has_grown_a_model(self, rounds: ScanSchedule) -> bool:
        """Whether as much came as a model's weights take: with each epoch a copy of them may come."""
        sizes = [sum(storages_of(parameters_of(model)).values()) for model in self.watch.models]
        return bool(sizes) and rounds.is_worth_one_more(self.watch, max(sizes))

    def _next_pass(self, stage: Stage) -> ScanSchedule:
        """Of evaluation; what was counted in the last pass is not forgotten, for what nobody clears grows over all."""
        before, then = self._ended.get(stage, (None, 0))
        passes = self._passes.get(stage, 0)
        return ScanSchedule(rests=bool(passes & (passes - 1)), before=before, away=self.watch.batches - 1 - then)

    def _go_on(self, rounds: ScanSchedule, steps: int) -> None:
        watch = self.watch
        self._steps.append((watch.batches, watch.optimizer_steps))
        suspicions = rounds.advance(watch, list(user_frames(sys._getframe(1))), steps)
        if suspicions is None:
            return
        if suspicions.swollen:
            for fact in swollen_facts(watch, suspicions.swollen, self._reported):
                self.report(fact)
        if handed := suspicions.handed - self._explained:
            self._explained |= handed
            for fact in handed_facts(watch, handed, self._reported):
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
        owned, wanted = owned_by(watch.models, watch.optimizers), owned_by(watch.models)
        for optimizer in watch.optimizers:
            wanted.update(used_state(optimizer))
        survey = watch.search()
        if watch.stage is Stage.TRAIN:
            # Before what grows, for copies that pile up grow as well.
            copies = find_copies(survey, watch.models, ignore=owned)
            for copied in self._piles.facts(copies, survey.frames, batch=watch.batch, stage=watch.stage):
                self.report(copied)
        if grown:
            before = {number: length for number, (length, _) in grown.items()}
            batches = max(watch.batches - max(batch for _, batch in grown.values()), 1)
            self._grown.tell(survey, before, batches, owned)
        if pinned:
            self._views.tell(find_pins(survey, ignore=wanted, min_storage_bytes=MIN_PIN_BYTES), pinned)
        for held in find_stored(survey, watch.now, ignore=owned):
            if held.place not in self._exceptions:
                self._exceptions.add(held.place)
                self.report(held)

    def _steps_since(self, batches: int) -> int:
        """Optimizer steps since so many batches had been."""
        then = next((steps for seen, steps in self._steps if seen >= batches), self.watch.optimizer_steps)
        return self.watch.optimizer_steps - then


def swollen_facts(watch: ProbeContext, swollen: Mapping[int, ObjectGrowth], reported: set[Line]) -> Iterator[Fact]:
    """Single objects that a statement makes larger with every batch, or hangs on the graph of the last.

    Args:
        watch: The run.
        swollen: What grew, by the ids of tensors, arrays and texts that are alive.
        reported: Statements of earlier facts, to which these are added.
    """
    survey = watch.search()
    met = [(link, swollen[id(link.value)]) for link in survey.snapshot.tensors if id(link.value) in swollen]
    for graph in (False, True):
        grown = [(link, 0) for link, one in met if bool(one.nodes) is graph]
        for holder, links in survey.by_holder(grown, graph=graph):
            found = max((swollen[id(link.value)] for link in links), key=lambda found: found.bytes + found.nodes)
            if _is_new(holder, reported) and (fact := _of_tensor(watch, holder.place, found)) is not None:
                yield fact
    blocks = [(link, 0) for link in survey.snapshot.links if id(link.value) in swollen]
    for holder, links in survey.by_holder(blocks, plain=True):
        if _is_new(holder, reported):
            yield _of_block(
                watch, holder.place, max((swollen[id(link.value)] for link in links), key=lambda one: one.bytes)
            )


def handed_facts(watch: ProbeContext, containers: frozenset[int], reported: set[Line]) -> Iterator[Fact]:
    """Containers of what DataLoader workers handed over, though nothing is added to them any more."""
    survey = watch.search()
    for link in [link for link in survey.snapshot.links if id(link.value) in containers]:
        place, length = survey.cause(link), length_of(link.value)
        if place.file is None or place.where in reported:
            continue
        reported.add(place.where)
        yield KeptOnHost(
            **watch.now,
            place=place,
            elements=length,
            bytes=size_of(newest_of(link.value)) * length,
            bytes_per_batch=0.0,
            from_workers=True,
        )


def _is_new(holder: Holder, reported: set[Line]) -> bool:
    """Whether a statement adds to something that stays, and no fact is about it yet."""
    place = holder.place
    if not holder.grows or place.where in reported or keeps_a_slice(place.source):
        return False
    if is_made_anew(place.file, place.line, place.holder):
        return False
    if is_new_item(place.source, symbol_of(place.holder)[0]):  # a larger element beside the last one, which stays
        return False
    reported.add(place.where)
    return True


def _of_tensor(watch: ProbeContext, place: Place, found: ObjectGrowth) -> Fact | None:
    first = max(watch.batch - found.since, 0)
    if found.nodes and watch.trains_nothing and watch.carried:
        return None  # it belongs to a carried state that was reported, and gets longer with it
    carried = is_state(place, watch.models, list(user_frames()))
    if found.nodes:
        if watch.stage.evaluates and (
            (watch.evaluated and (carried or (place.function or "").endswith(".forward")))
            or (place.file, place.function) in watch.rolled_out
            or fate_of(place.file or "", place.line or 0) is Fate.BACKWARD
        ):
            return None  # an evaluation that lacks a no_grad, told as that; or one that trains
        return RetainedGraphs(
            **watch.now,
            place=place,
            graphs=found.batches,
            first_batch=first,
            last_batch=watch.batch,
            optimizer_steps=0,
            carried=carried,
            deepened=True,
        )
    bounded = bool(bounds_of(place.file, place.line, place.holder, evaluates=watch.stage.evaluates))
    in_forward = any((name or "").endswith(".forward") for name in (place.function, place.caller_function))
    if is_on_host(place) or (carried and bounded) or (in_forward and watch.stage.evaluates):
        return None  # a state that grows for as long as one sequence: the keys and values of its attention
    return KeptOutputs(
        **watch.now,
        place=place,
        tensors=found.batches,
        first_batch=first,
        bytes=found.bytes,
        bytes_per_batch=found.bytes / found.batches,
        bounded=bounded,
        what=OF_BATCHES,
    )


def _of_block(watch: ProbeContext, place: Place, found: ObjectGrowth) -> Fact:
    """An array or a text that is joined to what every batch brings."""
    return KeptOnHost(
        **watch.now,
        place=place,
        elements=found.batches,
        bytes=found.bytes,
        bytes_per_batch=found.bytes / found.batches,
        first_batch=max(watch.batch - found.since, 0),
        bounded=bool(bounds_of(place.file, place.line, place.holder, evaluates=watch.stage.evaluates)),
    )
