"""What holds old graphs and the fact made of it, and whether a module, or a function, keeps a recurrent state."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import NamedTuple, TypeAlias, final

import torch
from torch import nn

from memguard.evidence.graph_tracker import ForwardGraph
from memguard.evidence.graphs.after_backward import SavedTensors, tied_gradients, tied_marks
from memguard.evidence.graphs.graph_contents import who_holds
from memguard.evidence.graphs.periodic_graphs import MIN_BATCHES, LeakGroup, LeakGroups, is_chained
from memguard.evidence.interface import Probe
from memguard.evidence.naming.holders import Holder
from memguard.heap.attributes import fields_of, is_tensor, is_user_class
from memguard.heap.containers import tensors_in
from memguard.heap.frames import read_locals, user_frames
from memguard.heap.roots import submodules_of
from memguard.records.facts import NOWHERE, Place, RetainedGraphs
from memguard.source.fate import Fate, fate_of
from memguard.source.stores import carries_itself, makes_state, passes_on

RUNS = 16
"""Of the collector at most, each of which finds something more."""

Asks: TypeAlias = Callable[[Holder, bool], int | None]
"""Told a holder, and whether no backward can run through the graphs any more: how many of them it takes; None where
nothing is to be told of few."""


class _Kept(NamedTuple):
    """Who holds some graphs, and what these hold; see `GraphContents`."""

    holders: tuple[Holder, ...]
    bytes: int
    saves: bool
    spoilt: bool


@final
class Keepers:
    """Names who keeps graphs that should be gone, and tells it once for each cause.

    Attributes:
        causes: In training, and in evaluation.
        unnamed: Training (or not): whose holder only the collector may know; it is asked in the next batch.
        trained: Whether a backward ran through any graph that was built in training mode; kept by the probe.
    """

    def __init__(self, probe: Probe, saved: SavedTensors) -> None:
        self._probe, self._watch, self._report, self._saved = probe, probe.watch, probe.report, saved
        self.causes = {True: LeakGroups(), False: LeakGroups()}
        self.unnamed: dict[bool, LeakGroup] = {}
        self.trained = False
        self._filled: list[Place] = []
        """Statements that were told of: what only hands on what they fill is no cause of its own."""

    def diagnose(
        self, old: list[ForwardGraph], batches: set[int], training: bool, *, carried: bool, asks: Asks | None = None
    ) -> int | None:
        """Tells who keeps some graphs.

        Args:
            old: Their marks, oldest first.
            batches: The batches that they are of.
            training: Whether they were built in training mode.
            carried: Whether newer graphs reach them.
            asks: Where they are few: how many it takes; nothing is told of fewer.

        Returns:
            What was asked for the first holder.
        """
        watch, causes, marks = self._watch, self.causes[training], old
        cause = causes.of(old[-1])
        tied = tied_marks(old) if asks is None else []
        if tied:  # a variable that holds one of the others would be blamed for all
            old, batches = tied, {mark.batch for mark in tied}
            if len(batches) < MIN_BATCHES:
                return None
        ask_collector = self.unnamed.pop(training, None) is cause
        used = old[0].used
        kept = self._who_keeps(old, ask_collector=ask_collector, dates=asks is not None and not used)
        holders = kept.holders
        # What only collects is a bystander of the state that is made from itself.
        carriers = [h for h in holders if h.grows and h.length < MIN_BATCHES] if carried else []
        named, holders = holders, _last_of_themselves(carriers) or holders
        least = MIN_BATCHES
        if asks is not None:
            spent = used or kept.spoilt
            needed, least = asks(holders[0], spent) if holders else None, len(batches)
            if needed is None or needed > least or (not carried and 1 < holders[0].length < needed):
                return needed
            holders = (holders[0], *(h for h in holders[1:] if (asks(h, spent) or MIN_BATCHES) <= least))
        if not any(holder.tensors for holder in holders) and not ask_collector:  # none, or nothing but a comprehension
            if _are_garbage(old, min(least, MIN_BATCHES)):
                causes.looked(cause, marks, len(batches))
                return None  # they were garbage: the cycles probe tells that
            if not holders:
                self.unnamed[training] = cause  # to ask the collector costs as much again: in the next batch
                return None
        causes.looked(cause, marks, len(batches))
        doubled = carried and used  # those had their gradients, again and again
        place = holders[0].place if holders and not training and not doubled else NOWHERE
        # Kept for a gradient of something that is more than their sum: it needs all of them.
        one_loss = fate_of(place.file or "", place.line or 0) is Fate.BACKWARD
        if one_loss or (holders and all(holder.exception for holder in holders)):
            return None  # kept errors and their tracebacks are another rule's
        told = tied_gradients(tied, watch) if not any(holder.tensors for holder in holders) else None
        if told is not None:
            self._report(told)
            return None
        if not holders and (cause is not causes.first or cause.lines):
            return None  # as likely as not what was told, seen through C++
        kept, least = kept._replace(holders=holders), min(least, MIN_BATCHES)
        is_local = _is_local(named)
        self._tell(old, batches, training, kept, cause, reached=carried, least=least, is_local=is_local)
        return None

    def _who_keeps(self, old: list[ForwardGraph], *, ask_collector: bool, dates: bool) -> _Kept:
        """Who holds some graphs, and what these hold. Looks further down where graphs were too large."""
        stage, how = old[0].stage, None if ask_collector else False
        for deep in (False, True):
            found, held = who_holds(self._probe, old, stage=stage, collector=how, deep=deep, dates=dates)
            if found or not held.gave_up:
                break
        return _Kept(found, held.of_batches(len({mark.batch for mark in old})), held.saves, held.spoilt)

    def _tell(
        self,
        old: list[ForwardGraph],
        batches: set[int],
        training: bool,
        kept: _Kept,
        cause: LeakGroup,
        *,
        reached: bool,
        least: int,
        is_local: bool,
    ) -> None:
        """Reports each holder of some graphs, and what they have in common."""
        watch, stage, holders = self._watch, old[0].stage, kept.holders
        steps = watch.optimizer_steps - max(mark.steps for mark in old)
        used = sum(mark.used for mark in old) * 2 > len(old)
        # Where later backwards ran through the oldest graph too, a state goes from batch to batch outside the model.
        chained = is_chained(old)
        rolled_out = not training and not used and reached and self.trained and is_local
        models = {mark.module for mark in old}
        if not training:
            watch.retained.update(models)
            watch.carried.update(models if reached and not rolled_out else ())
        elif reached:
            watch.chained.update(models)
        answers = not any(mark.training or mark.used for mark in old)
        piles_up = any(one.tensors > 0 and (one.grows or one.length >= MIN_BATCHES) for one in holders[:1])
        if answers and holders and not reached and not piles_up:
            return  # MG201 speaks of evaluation; a variable has the last answers, or a statement still runs
        frames = list(user_frames(sys._getframe(1)))
        evaluated = all(not mark.training and mark.module in watch.evaluated for mark in old)
        told: list[RetainedGraphs] = []
        for place in _places(holders, least=least):
            line, no_sum = place.where, chained and "+=" not in (place.source or "")
            carried = reached or no_sum or is_state(place, watch.models, frames)  # from batch to batch: a state
            if passes_on(place, self._filled):
                continue
            if self.causes[training].is_told_elsewhere(cause, line):
                continue
            cause.lines.add(line)
            self._filled.append(place)
            watch.chained.update(models if carried and training else ())
            if rolled_out or (carried and evaluated):
                watch.rolled_out.add((place.file, place.function))
            if carried and evaluated:
                continue  # what it lacks is a no_grad: told as that
            told.append(
                RetainedGraphs(
                    batch=watch.batch,
                    stage=stage,
                    place=place,
                    graphs=len(batches),
                    first_batch=min(batches),
                    last_batch=max(batches),
                    optimizer_steps=max(steps, 0),
                    bytes=kept.bytes,
                    backward=used,
                    saves=kept.saves,
                    carried=carried,
                    rolled_out=rolled_out,
                    trains=not watch.trains_nothing,
                    node=None if holders else old[0].node,
                    retained_by=self._saved.carried_by or old[0].kept or NOWHERE,
                    followed=watch.ledger.followed(stage, min(batches), max(batches)),
                )
            )
            self._report(told[-1])
            if carried and chained:
                self._saved.tell_passed(old)
        cause.facts = told or cause.facts


def _last_of_themselves(carriers: list[Holder]) -> tuple[Holder, ...]:
    """Of states that are carried the one to cut: the last that is made of its own last value, else the first."""
    own = [h for h in carriers if carries_itself(h.place.source, (h.place.holder or "").rpartition(".")[2])]
    beside = [h for h in own if (h.place.file, h.place.function) == (own[0].place.file, own[0].place.function)]
    return tuple(sorted(beside, key=lambda h: -(h.place.line or 0))[:1] or carriers[:1])


def _are_garbage(marks: list[ForwardGraph], least: int) -> bool:
    """Whether the collector leaves too few graphs.

    Contexts that keep their own output are a circle each, and the next one's graph holds it through C++, where the
    collector does not look: each run frees the last of every graph alone.
    """
    for _ in range(RUNS):
        found = gc.collect()
        if sum(mark.alive for mark in marks) < least:
            return True
        if not found:
            break
    return False


def _is_local(holders: tuple[Holder, ...]) -> bool:
    """Whether what holds most is a variable of a function: its state is gone when the roll-out is over."""
    place = holders[0].place if holders else NOWHERE
    return place.function not in (None, "<module>") and "." not in (place.holder or ".")


def _places(holders: tuple[Holder, ...], *, least: int) -> list[Place]:
    """The causes among the holders: the first, and others that grow by themselves (a container, a running sum)."""
    if not holders:
        return [NOWHERE]
    others = [
        holder.place
        for holder in holders[1:]
        if holder.grows and (holder.length >= least or "+=" in (holder.place.source or ""))
    ]
    return [holders[0].place, *others]


def is_state(place: Place, models: Iterable[nn.Module], frames: Iterable[FrameType] = ()) -> bool:
    """Whether what is kept is made anew in each batch from what it was: a memory, a moving average; no sum of numbers.

    Args:
        place: The statement that keeps.
        models: The models, one of which has it.
        frames: The user's frames, in which what has it, or the variable, may be instead.
    """
    if not makes_state(place):
        return False
    owner, _, name = (place.holder or "").partition("[")[0].rpartition(".")
    if not owner:
        here = (frame for frame in frames if frame.f_code.co_filename == place.file)
        values = [read_locals(frame).get(name) for frame in here]
        # A dictionary that an object has is a collection rather, as the averages of all weights are.
        return any(_has_several(tuple(value.values()) if type(value) is dict else value) for value in values)
    for one in _owners(models, frames, owner.rpartition(".")[2]):
        attributes = fields_of(one)
        buffers = attributes.get("_buffers")
        if _has_several(attributes.get(name, dict.get(buffers, name) if isinstance(buffers, dict) else None)):
            return True
    return False


def _has_several(value: object) -> bool:
    """Whether it is a tensor of more than one element, or a tuple of such: of one, an average is only shown."""
    tensors = tensors_in(value, 2) if is_tensor(value) or type(value) is tuple else ()
    with torch._C.DisableTorchFunctionSubclass():  # a subclass's own code is not asked
        return any(torch.Tensor.numel(tensor) > 1 for tensor in tensors)


def _owners(models: Iterable[nn.Module], frames: Iterable[FrameType], name: str) -> Iterator[object]:
    """Objects whose class has a name: parts of the models, what variables stand for, and what that has, with its parts.

    A module of which only methods and parts are called is none of the models.
    """
    seen: set[int] = set()
    for part in (part for model in models for part in submodules_of(model, seen)):
        if type(part).__name__ == name:
            yield part
    for frame in frames:
        for value in list(read_locals(frame).values()):
            is_model = issubclass(type(value), nn.Module)
            if is_model or (is_user_class(type(value)) and not issubclass(type(value), type)):
                below = [value] if is_model else [value, *fields_of(value).values()]
                for one in below:
                    parts = submodules_of(one, seen) if issubclass(type(one), nn.Module) else (one,)
                    yield from (part for part in parts if type(part).__name__ == name)
