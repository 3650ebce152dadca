"""Graphs of earlier batches that stay alive: kept losses and outputs, carried state, saved tensors after backward.

Long because one look at the same old graphs decides between these causes.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, ClassVar, NamedTuple, final

from torch import nn

from memguard.facts import NOWHERE, Fact, Place, RetainedGraphs
from memguard.probes.graphs.after_backward import SavedTensors, tied_gradients, tied_marks
from memguard.probes.graphs.carrying import (
    MIN_CHAIN,
    RECURSION,
    SHORT_CHAIN,
    carried_needed,
    chain_needed,
    find_chain,
    find_recursion,
    is_chained,
    recursion_needed,
)
from memguard.probes.graphs.causes import AGAIN, Cause, Causes, calling_line
from memguard.probes.graphs.fed_back import is_fed_back
from memguard.probes.graphs.graph_judge import GraphJudge
from memguard.probes.graphs.own_memory import is_own_memory
from memguard.probes.graphs.regular import FEWEST, MIN_BATCHES, find_regular, graphs_needed
from memguard.probes.graphs.together import GraphsTogether
from memguard.probes.interface import Probe, Watch, is_optimized
from memguard.probes.ledger import KEY, Mark, Sentinel
from memguard.probes.naming.holders import Holder
from memguard.probes.objects.frames import function_key, user_frames
from memguard.probes.objects.nested import tensors_in
from memguard.probes.objects.sizes import owned_storages, walk
from memguard.probes.reach import Reach
from memguard.source.followed import meets_backward
from memguard.source.handed_on import hands_on
from memguard.source.in_vain import is_differentiated, is_in_vain
from memguard.stats import Stage

MIN_STEPS = 3
"""Optimizer steps that each must have survived."""
LONG_LIVED, LOOKS = 16, 14
"""Batches that a graph lives for which the next ones are looked at, whatever that costs; enough for a finding."""
FIRST_WAIT, LONGER = 256, 4
"""Batches until that may be asked for again, and by how many times that grows: one may be kept for a good reason."""
RUNS = 16
"""Of the collector at most, each of which finds something more."""


class _Kept(NamedTuple):
    """Who holds some graphs, and what these hold; see `GraphJudge`."""

    holders: tuple[Holder, ...]
    bytes: int
    saves: bool
    spoilt: bool


@final
class GraphsProbe(Probe):
    """Marks the graph of every forward, and finds those that outlive what they were built for.

    A graph that survived three optimizer steps is out of date: the weights it was built on have changed. Graphs of
    eight batches are no last-k window any more. Before the first optimizer step nothing is concluded in training.
    """

    name: ClassVar[str] = "graphs"

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._causes = {True: Causes(), False: Causes()}
        """In training, and in evaluation."""
        self._unnamed: dict[bool, Cause] = {}
        """Training (or not): whose holder only the collector may know; it is asked in the next batch."""
        self._carried = False
        self._needed = {True: FEWEST, False: FEWEST}
        """Graphs at intervals that suffice, used ones or not; an entry goes once they are no question any more."""
        self._shortest = SHORT_CHAIN
        """Forwards that a state must have gone through without a step between them."""
        self._recursion_from = RECURSION
        """Graphs at which one is looked for whose backwards double it."""
        self._last: dict[int, Mark] = {}
        self._again, self._wait = 0, FIRST_WAIT
        """The batch from which on many looks may be asked for again."""
        self._ended = self._unseen = -1
        """The last batch that was looked at, and the last that was not."""
        self._saved = SavedTensors(watch, report, self.holders)
        self._idle: bool | None = None
        self._trained = False
        self._together = GraphsTogether(watch, report, self.holders)
        self._filled: list[Place] = []
        """Statements that were told of: what only hands on what they fill is no cause of its own."""
        self._tied_at = MIN_BATCHES
        """Batches with a graph of a backward with create_graph, without steps, at which somebody is looked for."""

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Looks whether the saved tensors of this model's last graph are still there."""
        last = self._last.get(id(module))
        if last is None or not last.alive or last.kept is None:
            return
        if last.steps < self.watch.optimizer_steps:  # in the same batch too: a step for each of several losses
            self._saved.look(last)
        elif module.training:
            self._saved.look_within(last)

    def on_forward_end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """Where old graphs are about to be told: asks whether this one reaches them."""
        mark = self.watch.ledger.current
        if mark is None:
            return
        self._last[mark.module] = mark  # in eval mode too: an input is optimized through a frozen model
        self._together.look(mark)
        if self.watch.ledger.oldest < mark.batch - 1:
            mark.line = calling_line()
            if self._is_about_to_tell(mark.training, output):
                self.watch.calling.update(map(function_key, user_frames(sys._getframe(1))))

    def on_stem_end(self, module: nn.Module, output: object) -> None:
        """Likewise for a state that only the inside of the model carries."""
        watch = self.watch
        if watch.ledger.oldest < watch.batch - 1:
            self._is_about_to_tell(module.training, output)

    def on_batch_end(self) -> None:
        """Concludes."""
        if self._saved.open:
            self._saved.conclude()
        if len(self._last) > 64:
            self._last.clear()
            self._together.forget()
        if not self._trained:
            self._trained = any(mark.used and mark.training for mark in self.watch.ledger.died)
        if self.watch.batch > self._ended + 1:
            self._unseen = self.watch.batch - 1
        self._ended = self.watch.batch
        if self.watch.ledger.oldest >= self.watch.batch - 1:
            return
        for mark in list(self.watch.ledger.live.values()):
            if mark.used and mark.spent is None:
                mark.spent = self.watch.optimizer_steps
        for training in (True, False):
            old = self._old(training)
            batches = {mark.batch for mark in old}
            if training and len(batches) >= 2:
                self.watch.look_closely(4 * MIN_BATCHES)
            for cause, marks in self._causes[training].sorted(old):
                if training and cause is self._causes[training].next:
                    self._look_again_soon(marks[0])
                cause.alive = len({mark.batch for mark in marks})
                if cause.alive >= cause.again and self._certain(training):
                    self._look(cause, marks, training)
        self._look_for_tied()
        for used, needed in tuple(self._needed.items()):
            if len(self.watch.ledger.live) >= needed:
                self._look_for_few(used, needed)
        first = self._causes[True].first
        if len(self.watch.ledger.live) >= (first.again if first is not None else self._shortest):
            self._look_for_chain()
        if self._recursion_from <= len(self.watch.ledger.live):
            self._look_for_recursion()

    def on_stage_end(self, stage: Stage) -> None:
        """What was to be asked in the next batch is asked now."""
        self._saved.conclude()
        for training, cause in tuple(self._unnamed.items()):
            old = [mark for mark in self._old(training) if self._causes[training].of(mark) is cause]
            if old:
                self._look(cause, old, training)

    def remove(self) -> None:
        """Forgets the last graphs."""
        self._last.clear()
        self._together.forget()

    # Old graphs

    def _look_again_soon(self, oldest: Mark) -> None:
        """One graph that outlived many batches says as much as several that came in a row: the next looks tell."""
        watch = self.watch
        if watch.batch - oldest.batch >= LONG_LIVED and watch.batch >= self._again:
            self._again, self._wait = watch.batch + self._wait, self._wait * LONGER
            watch.look_closely(LOOKS, surely=True)

    def _look(self, cause: Cause, old: list[Mark], training: bool) -> None:
        """Of graphs that count to one cause; whether a later one is carried does not depend on the first."""
        first, carried = self._causes[training].first, self._carried
        if first is not None and cause is not first:
            self._carried = cause.carried
        self._diagnose(old, {mark.batch for mark in old}, training)
        self._carried = carried

    def _is_about_to_tell(self, training: bool, output: object) -> bool:
        """Whether all but one of the graphs that make a finding are there; asks then whether this one reaches them."""
        causes, enough = self._causes[training], MIN_BATCHES - 1
        later, is_enough = causes.next, False
        if not self._carried and len(old := self._old(training)) >= enough:
            is_enough, self._carried = True, _reaches(output, [*old, *self._old(not training)])
        if causes.first is not None and later.alive >= enough and not later.carried:
            old = [mark for mark in self._old(training) if causes.of(mark) is later]
            is_enough, later.carried = True, _reaches(output, old)
        return is_enough

    def _old(self, training: bool) -> list[Mark]:
        """The marks of graphs that should be gone; those of evaluation count from the next batch on."""
        watch = self.watch
        steps = watch.optimizer_steps
        found = []
        for mark in list(watch.ledger.live.values()):
            if mark.used and mark.training:
                self._trained = True
            if mark.batch >= watch.batch - 1:
                continue
            if steps - mark.steps >= MIN_STEPS:
                if training:
                    found.append(mark)
            elif not training and not mark.training and not mark.used:
                found.append(mark)
        return found

    def _certain(self, training: bool) -> bool:
        """Whether nothing legitimate holds so many graphs: without a step yet, only where nothing can train."""
        watch = self.watch
        if training:
            return watch.optimizer_steps >= MIN_STEPS
        if watch.lightning:
            return watch.stage.evaluates
        if watch.optimizer_steps and self._trained:
            return True
        if self._idle is None:
            self._idle = not is_optimized(watch, watch.models)
        return self._idle

    def _look_for_few(self, used: bool, needed: int) -> None:
        """Of what is kept once in some batches: waiting for as many as of what is kept in each would take long."""
        watch = self.watch
        if watch.stage is not Stage.TRAIN or self._causes[True].first or True in self._unnamed:
            return
        if self._carried and used:
            return
        live, steps = list(watch.ledger.live.values()), watch.optimizer_steps
        found = find_regular(live, used=used, batch=watch.batch, steps=steps, unseen=self._unseen)
        if found is not None and len(found.batches) >= needed:
            length = len(found.marks) if found.unseen else 0
            asks = carried_needed if self._carried else functools.partial(graphs_needed, length=length)
            more = self._diagnose(found.marks, found.batches, True, asks=asks)
            if more is not None and more > needed:
                self._needed[used] = more
            else:
                self._needed.pop(used)

    def _look_for_tied(self) -> None:
        """Of tensors whose gradients carry a graph, which nobody steps: a fit that is thrown away with its grad."""
        watch = self.watch
        marks = [mark for mark in list(watch.ledger.live.values()) if mark.created and mark.batch < watch.batch - 1]
        if len({mark.batch for mark in marks}) < self._tied_at or self._causes[True].first or True in self._unnamed:
            return
        self._tied_at *= AGAIN
        if watch.optimizer_steps >= MIN_STEPS:
            return  # then they are found by the steps that they survived
        gc.collect()
        marks = [mark for mark in marks if mark.alive > 0]
        tied = tied_gradients(tied_marks(marks), watch) if len({mark.batch for mark in marks}) >= MIN_BATCHES else None
        keys = {id(mark) for mark in marks}
        reach = Reach(KEY, lambda sentinel: id(sentinel.mark) in keys)
        if tied is not None and not self.holders(reach, graph=True, passes=reach.passes, stage=tied.stage):
            self.report(tied)

    def _look_for_chain(self) -> None:
        """Of a state that is carried over segments without a step between them: those of a document."""
        before = self.watch.batch - 1
        marks = [mark for mark in list(self.watch.ledger.live.values()) if mark.batch < before]
        chain = find_chain(marks, self._shortest)
        if chain:
            batches, carried = {mark.batch for mark in chain}, self._carried
            self._carried = True
            self._diagnose(chain, batches, True, asks=chain_needed if len(batches) < MIN_CHAIN else None)
            if self._causes[True].first is None:
                self._shortest, self._carried = MIN_CHAIN, carried

    def _look_for_recursion(self) -> None:
        """Of a vector that is multiplied by a Hessian again and again, each product with the graph of the last."""
        marks = find_recursion(list(self.watch.ledger.live.values()))
        if marks:
            carried, self._carried = self._carried, True
            self._diagnose(marks, {mark.batch for mark in marks}, False, asks=recursion_needed)
            self._carried = carried
            self._recursion_from *= AGAIN

    def _who_keeps(self, old: list[Mark], *, ask_collector: bool, dates: bool) -> _Kept:
        """Who holds some graphs, and what these hold. Looks further down where graphs were too large."""
        keys, how = {id(mark) for mark in old}, None if ask_collector else False
        for deep in (False, True):
            reach = Reach(KEY, lambda sentinel: id(sentinel.mark) in keys, deep=deep)
            judge = GraphJudge(reach, owned_storages(self.watch.models), dates=dates)
            holders = self.holders(
                judge, graph=True, passes=reach.passes, stage=old[0].stage, collector=how, rest=judge.count
            )
            if holders or not reach.gave_up:
                break
        return _Kept(holders, judge.total(), judge.saves, judge.spoilt)

    def _diagnose(
        self,
        old: list[Mark],
        batches: set[int],
        training: bool,
        *,
        asks: Callable[[Holder, bool], int | None] | None = None,
    ) -> int | None:
        """Tells who keeps some graphs.

        Args:
            old: Their marks, oldest first.
            batches: The batches that they are of.
            training: Whether they were built in training mode.
            asks: Where they are few: how many it takes with a holder, and whether no backward can run through them any
                more; nothing is told of fewer.

        Returns:
            What was asked for the first holder.
        """
        watch, causes, marks = self.watch, self._causes[training], old
        cause = causes.of(old[-1])
        tied = tied_marks(old) if asks is None else []
        if tied:  # a variable that holds one of the others would be blamed for all
            old, batches = tied, {mark.batch for mark in tied}
            if len(batches) < MIN_BATCHES:
                return None
        ask_collector = self._unnamed.pop(training, None) is cause
        used = old[0].used
        kept = self._who_keeps(old, ask_collector=ask_collector, dates=asks is not None and not used)
        holders = kept.holders
        # What only collects is a bystander of the state that is made from itself.
        carriers = [h for h in holders if h.grows and h.length < MIN_BATCHES] if self._carried else []
        named, holders = holders, tuple(carriers[:1]) or holders
        least = MIN_BATCHES
        if asks is not None:
            spent = used or kept.spoilt
            needed, least = asks(holders[0], spent) if holders else None, len(batches)
            if needed is None or needed > least or (not self._carried and 1 < holders[0].length < needed):
                return needed
            holders = (holders[0], *(h for h in holders[1:] if (asks(h, spent) or MIN_BATCHES) <= least))
        if not any(holder.tensors for holder in holders) and not ask_collector:  # none, or nothing but a comprehension
            if _are_garbage(old, min(least, MIN_BATCHES)):
                causes.looked(cause, marks, len(batches))
                return None  # they were garbage: the cycles probe tells that
            if not holders:
                self._unnamed[training] = cause  # to ask the collector costs as much again: in the next batch
                return None
        causes.looked(cause, marks, len(batches))
        doubled = self._carried and used  # those had their gradients, again and again
        one_loss = not training and not doubled and bool(holders) and _are_one_loss(holders[0].place)
        if one_loss or (holders and all(holder.exception for holder in holders)):
            return None  # kept errors and their tracebacks are another rule's
        told = tied_gradients(tied, watch) if not holders else None
        if told is not None:
            self.report(told)
            return None
        if not holders and (cause is not causes.first or cause.lines):
            return None  # as likely as not what was told, seen through C++
        kept, least = kept._replace(holders=holders), min(least, MIN_BATCHES)
        self._tell(old, batches, training, kept, cause, least=least, is_local=_is_local(named))
        return None

    def _tell(
        self,
        old: list[Mark],
        batches: set[int],
        training: bool,
        kept: _Kept,
        cause: Cause,
        *,
        least: int,
        is_local: bool,
    ) -> None:
        """Reports each holder of some graphs, and what they have in common."""
        watch, stage, holders = self.watch, old[0].stage, kept.holders
        steps = watch.optimizer_steps - max(mark.steps for mark in old)
        used = sum(mark.used for mark in old) * 2 > len(old)
        # Where later backwards ran through the oldest graph too, a state goes from batch to batch outside the model.
        chained = is_chained(old)
        rolled_out = not training and not used and self._carried and self._trained and is_local
        together = not training and not used and bool(holders) and is_in_vain(holders[0].place, used=False)
        self._note_models({mark.module for mark in old}, training, (self._carried and not rolled_out) or together)
        answers = not any(mark.training or mark.used for mark in old)
        if answers and holders and not self._carried and not _piles_up(holders[0]):
            return  # evaluation is told of
        frames = list(user_frames(sys._getframe(1)))
        evaluated = all(not mark.training and mark.module in watch.evaluated for mark in old)
        for place in _places(holders, least=least):
            carried, line = self._is_carried(place, frames, chained=chained), (place.file, place.line)
            if hands_on(place, self._filled) or (answers and line in watch.evaluated_at):
                continue
            if self._causes[training].is_told_elsewhere(cause, line):
                continue
            self._note_place(place, cause, old if training else [])
            if rolled_out or (carried and evaluated):
                watch.rolled_out.add((place.file, place.function))
            if carried and evaluated:
                continue  # what it lacks is a no_grad: told as that
            self.report(
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
                    together=together,
                    node=None if holders else old[0].node,
                    retained_by=self._saved.carried_by or old[0].kept or NOWHERE,
                )
            )
            if carried and chained:
                self._saved.tell_passed(old)

    def _is_carried(self, place: Place, frames: list[FrameType], *, chained: bool) -> bool:
        """Whether what a statement keeps goes from batch to batch: a state, not a collection."""
        return (
            self._carried
            or (chained and "+=" not in (place.source or ""))
            or is_fed_back(place, frames)
            or is_own_memory(place, self.watch.models, frames)
        )

    def _note_place(self, place: Place, cause: Cause, kept_over_steps: list[Mark]) -> None:
        """What is to be known of a statement that keeps graphs: who told it, and who asked for those of evaluation."""
        line = place.file, place.line
        cause.lines.add(line)
        self._filled.append(place)
        self.watch.told.add(line)
        asked = (mark.asked for mark in kept_over_steps if not mark.training)
        self.watch.retained_at.update(place for place in asked if place is not None)

    def _note_models(self, models: set[int], training: bool, carried: bool) -> None:
        """What other probes are to know of the models whose graphs are kept."""
        watch = self.watch
        if not training:
            watch.retained.update(models)
            watch.carried.update(models if carried else ())
        elif self._carried:
            watch.chained.update(models)


def _reaches(output: object, old: list[Mark]) -> bool:
    """Whether the graph of what a forward gave goes through one of some forwards' graphs."""
    keys = {id(mark) for mark in old}
    for tensor in tensors_in(output):
        if tensor.grad_fn is None:
            continue
        for node in walk(tensor.grad_fn):
            sentinel = node.metadata.get(KEY)
            if type(sentinel) is Sentinel and id(sentinel.mark) in keys:
                return True
    return False


def _are_garbage(marks: list[Mark], least: int) -> bool:
    """Whether the collector leaves too few graphs.

    Contexts that keep their own output are a circle each, and the next one's graph holds it through C++, where the
    collector does not look: each run frees the last of every graph alone.
    """
    for _ in range(RUNS):
        found = gc.collect()
        if sum(mark.alive > 0 for mark in marks) < least:
            return True
        if not found:
            break
    return False


def _are_one_loss(place: Place) -> bool:
    """Whether graphs are kept for a gradient of something that is more than their sum: it needs all of them."""
    if is_differentiated(place):
        return not is_in_vain(place, used=False)
    return meets_backward(place.file or "", place.line or 0, place.holder or "")


def _piles_up(holder: Holder) -> bool:
    """Whether answers stay with every batch: neither a variable with the last ones nor a statement that still runs."""
    return holder.tensors > 0 and (holder.grows or holder.length >= MIN_BATCHES)


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
