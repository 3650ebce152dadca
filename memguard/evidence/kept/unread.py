"""What a name keeps through training though no operator reads it there, on devices that see every operator."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import nn

from memguard.evidence.interface import Probe, StorageUse, StorageUses
from memguard.evidence.owners import state_of
from memguard.heap.attributes import is_user_class
from memguard.heap.walk import Link
from memguard.records.facts import MicroBatchGraphs, MicroBatchOutputs, Place, UnreadStorages
from memguard.records.stats import Stage
from memguard.source.sites import remedy_of_stash
from memguard.thresholds import least_of_peak, some_of
from memguard.torch_objects.module_parts import buffers_of, gradients_of, parameters_of

MIN_BYTES = 16 * 1024
"""Smaller storages are not followed."""
FORWARDS = 3
"""Training forwards that it must have been kept through."""
STEPS, LOOKS = 48, 4
"""Optimizer steps at which it is asked for, and how many walks may be made to name it."""
OVER = 8
"""Steps that others have taken since an optimizer's last one, from which on its phase may be over."""
OF_STATES = "let go of that optimizer where its phase ends: its states go with it."
WAY = 2
"""Names that are given of the way to it, from the object that was let go."""
_HEARD = ("on_forward_start", "on_batch_end", "on_optimizer_step_start")


@final
@dataclass(slots=True)
class _Suspect:
    """What one name kept."""

    place: Place
    around: list[tuple[weakref.ref[Any], Place, str]]
    """Objects of the user's that it lies in, outermost first, each with its own name and the way on from there."""
    uses: list[tuple[StorageUse, int]]
    """With the time of the last use as it was found."""
    forwards: int
    least: int
    """Bytes of that batch's peak from which on it is reported."""
    peak: int | None
    within_step: bool = False
    is_state: bool = False
    """Whether it is an optimizer's."""
    numbers: bool = False
    """Whether each is one number, with the storage of what it was computed from."""

    def let_go(self) -> tuple[Place, str]:
        """Of the names the one that let go of it: that of the outermost object that is gone, and the way on."""
        return next(((place, way) for ref, place, way in self.around if ref() is None), (self.place, ""))

    def unread(self) -> list[StorageUse]:
        """Those that no operator took since."""
        return [use for use, used in self.uses if use.used == used]


@final
class UnreadProbe(Probe):
    """Looks, as the optimizer steps, for storages that no operator took while several forwards of training ran.

    Of interest are those of another phase (a generation's keys and values, merged or received weights), and those that
    a micro-batch of this step made and later ones left alone (activations put aside). What lies ready may be read yet:
    they are reported when they went without that. What nothing ever read is no leftover but kept for a later day.
    """

    def _prepare(self) -> None:
        if self.watch.uses is None:
            self.deaf = frozenset(_HEARD)
        self._since, self._trained = 0, [0]
        """The time from which on all training was heard, and the training forwards up to each time since."""
        self._outside: list[bool] = [True]
        """Of each time, whether it is before the first training forward of a step."""
        self._step_began = 0
        self._number = -1
        self._steps = self._looks = self._taken = 0
        self._stepped: dict[int, int] = {}
        """Steps taken in all as each optimizer took its last, by its identity."""
        self._known: dict[int, StorageUse] = {}
        """Those that were suspected before."""
        self._suspects: list[_Suspect] = []

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Time goes on; what was suspected may be gone."""
        watch = self.watch
        if watch.stage is Stage.TRAIN:
            if watch.number > self._number + 1:  # training that nobody heard
                self._go_on(trains=False, outside=False)  # what was used until now may have been used in it
                self._since, self._trained, self._outside = self._uses.clock, self._trained[-1:], self._outside[-1:]
            self._number = watch.number
        trains = watch.stage is Stage.TRAIN and torch.is_grad_enabled()
        self._go_on(trains=trains, outside=not trains and self._outside[-1])
        if self._suspects:
            self._conclude()

    def on_batch_end(self) -> None:
        """What was suspected may be gone."""
        if self._suspects:
            self._conclude()

    def on_run_end(self) -> None:
        """An optimizer that did not step again had its states for nothing; data that lies there may be a result."""
        self._suspects = [suspect for suspect in self._suspects if suspect.is_state]
        self._conclude(is_over=True)

    def on_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """One that comes later may begin a phase, after which another one's states are left."""
        if self.watch.uses is not None:
            self._steps = 0
            self.hear(*_HEARD)

    def on_optimizer_step_start(self, optimizer: torch.optim.Optimizer) -> None:
        """Looks for such storages."""
        self._steps += 1
        self._taken += 1
        self._stepped[id(optimizer)] = self._taken
        if self._steps > STEPS or self._looks >= LOOKS:
            if not self._suspects:
                self.unsubscribe(*_HEARD)
        elif (least := least_of_peak(self.watch.peak_bytes)) is not None:
            self._suspect(least)
            self._suspect_states(some_of(self.watch.peak_bytes or 0))
        self._go_on(trains=False, outside=True)
        self._step_began = self._uses.clock

    @property
    def _uses(self) -> StorageUses:
        assert self.watch.uses is not None  # else nothing is heard
        return self.watch.uses

    def _go_on(self, *, trains: bool, outside: bool) -> None:
        self._uses.clock += 1
        self._trained.append(self._trained[-1] + trains)
        self._outside.append(outside)

    def _suspect(self, least: int) -> None:
        uses = self._uses
        before: dict[int, StorageUse] = {}
        within: dict[int, StorageUse] = {}
        for use in uses.alive():
            if use.nbytes < MIN_BYTES or id(use) in self._known or use.used < self._since or not self._idle(use):
                continue
            if use.born > max(self._step_began, self._since) and not self._outside[use.born - self._since]:
                within[id(use)] = use
            elif use.reads > 0 and self._outside[use.used - self._since] and self._idle(use) >= FORWARDS:
                before[id(use)] = use
        if max(sum(use.nbytes for use in some.values()) for some in (before, within)) < least:
            return
        for tensor in self._owned():
            if (own := uses.find(tensor)) is not None:
                before.pop(id(own), None)
                within.pop(id(own), None)
        for some, within_step in ((before, False), (within, True)):
            if sum(use.nbytes for use in some.values()) >= least and self._looks < LOOKS:
                self._looks += 1
                self._name(some, least, within_step=within_step)

    def _idle(self, use: StorageUse) -> int:
        """Training forwards since an operator took it, of those that were heard."""
        return self._trained[-1] - self._trained[max(use.used - self._since, 0)]

    def _suspect_states(self, least: int) -> None:
        """Looks for optimizers that stepped, and did not while others did."""
        uses = self._uses
        for optimizer in self.watch.optimizers:
            if self._taken - self._stepped.get(id(optimizer), self._taken) < OVER or self._looks >= LOOKS:
                continue
            found = [use for tensor in state_of(optimizer) if (use := uses.find(tensor)) is not None]
            states = [use for use in found if id(use) not in self._known]
            if sum(use.nbytes for use in states) < least:
                continue
            self._looks += 1
            survey = self.watch.search()
            link = next((link for link in survey.snapshot.links if link.value is optimizer), None)
            if link is not None:
                used, forwards = [(use, use.used) for use in states], max(map(self._idle, states))
                place, peak = survey.cause(link), self.watch.peak_bytes
                self._add(_Suspect(place, [], used, forwards, least, peak, is_state=True))

    def _owned(self) -> list[torch.Tensor]:
        watch = self.watch
        weights = [tensor for model in watch.models for tensor in parameters_of(model)]
        buffers = [tensor for model in watch.models for tensor in buffers_of(model)]
        states = [tensor for optimizer in watch.optimizers for tensor in state_of(optimizer)]
        return [*weights, *buffers, *gradients_of(weights), *states]

    def _name(self, some: dict[int, StorageUse], least: int, *, within_step: bool) -> None:
        uses = self._uses

        def judge(tensor: torch.Tensor) -> int | None:
            use = uses.find(tensor)
            return use.nbytes if use is not None and id(use) in some else None

        survey = self.watch.search()
        found = [*survey.judged(judge), *survey.judged(judge, unsampled=True)]
        order = [holder.place for holder in survey.holders(found, stage=self.watch.stage)]
        named: dict[Place, list[Link]] = {}
        for holder, links in survey.by_holder(found):
            if holder.place.holder:
                named.setdefault(holder.place, []).extend(links)
        for place in sorted(named, key=lambda place: order.index(place) if place in order else len(order)):
            held = {id(use): use for link in named[place] if (use := uses.find(link.value)) is not None}
            new = [use for number, use in held.items() if number in some and number not in self._known]
            births = {use.born for use in new}
            if not new or (within_step and len(births) < FORWARDS):
                continue
            trail = max(named[place], key=lambda link: _bytes_of(link, uses)).trail()
            around = [link for link in trail if is_user_class(type(link.value)) and type(link.value).__weakrefoffset__]
            ways = [(weakref.ref(link.value), survey.cause(link), _way_on(link, trail)) for link in around]
            forwards = len(births) if within_step else min(map(self._idle, new))
            numbers = all(link.value.numel() == 1 for link in named[place])
            used, peak = [(use, use.used) for use in new], self.watch.peak_bytes
            self._add(_Suspect(place, ways, used, forwards, least, peak, within_step, numbers=numbers))

    def _add(self, suspect: _Suspect) -> None:
        self._known.update((id(use), use) for use, _ in suspect.uses)
        self._suspects.append(suspect)

    def _conclude(self, *, is_over: bool = False) -> None:
        """Reports what went unread, or is unread as the run ends; what was read after all is forgotten."""
        waiting = []
        over: dict[tuple[Place, str, bool], list[tuple[_Suspect, int]]] = {}
        for suspect in self._suspects:
            unread = suspect.unread()
            gone = sum(use.nbytes for use in unread if is_over or use() is None)
            if 2 * gone < sum(use.nbytes for use in unread):
                waiting.append(suspect)
            elif gone:
                let_go = (suspect.place, "") if is_over else suspect.let_go()
                over.setdefault((*let_go, suspect.within_step), []).append((suspect, gone))
        self._suspects = waiting
        for (place, way, within_step), some in over.items():
            nbytes, (first, _) = sum(gone for _, gone in some), some[0]
            if nbytes < first.least or (within_step and self._is_explained(nbytes)):
                continue
            self.report(
                UnreadStorages(
                    **self.watch.now,
                    place=place,
                    bytes=nbytes,
                    forwards=first.forwards,
                    inside=way or None,
                    within_step=within_step,
                    peak_bytes=max(first.peak or 0, self.watch.peak_bytes or 0) or None,
                    numbers=first.numbers,
                    remedy=OF_STATES if first.is_state else remedy_of_stash(place),
                )
            )

    def _is_explained(self, nbytes: int) -> bool:
        """Whether half of it was reported as graphs or outputs of micro-batches, maybe under another name."""
        facts = self.watch.facts.values()
        known = sum(fact.bytes for fact in facts if isinstance(fact, (MicroBatchGraphs, MicroBatchOutputs)))
        return 2 * known >= nbytes


def _bytes_of(link: Link, uses: StorageUses) -> int:
    use = uses.find(link.value)
    return use.nbytes if use is not None else 0


def _way_on(link: Link, trail: list[Link]) -> str:
    """What is to be read of an object to come nearer to the end of a trail, like ``answer.past_key_values``."""
    names: list[str] = []
    for step in trail[trail.index(link) + 1 :]:
        if type(step.key) is not str or not step.key.isidentifier() or len(names) == WAY:
            break
        names.append(step.key)
    return ".".join(names)
