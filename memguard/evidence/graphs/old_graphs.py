"""Graphs of earlier batches that stay alive: kept losses and outputs, carried state, saved tensors."""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Mapping
from typing import Any, final

from torch import nn

from memguard.evidence.graph_tracker import ForwardGraph
from memguard.evidence.graphs.after_backward import SavedTensors, tied_gradients, tied_marks
from memguard.evidence.graphs.graph_contents import reach_of
from memguard.evidence.graphs.graph_holders import Keepers
from memguard.evidence.graphs.periodic_graphs import (
    AGAIN,
    FEWEST,
    MIN_BATCHES,
    MIN_CHAIN,
    SHORT_CHAIN,
    LeakGroup,
    chain_needed,
    find_chain,
    find_regular,
    graphs_needed,
)
from memguard.evidence.interface import Probe
from memguard.heap.containers import tensors_in
from memguard.heap.frames import call_site, function_key, user_frames
from memguard.heap.parameters import is_optimized
from memguard.records.stats import Stage

MIN_STEPS = 3
"""Optimizer steps that each must have survived."""
LONG_LIVED, LOOKS = 16, 14
"""Batches that a graph lives for which the next ones are looked at, whatever that costs; enough for a finding."""
FIRST_WAIT, LONGER = 256, 4
"""Batches until that may be asked for again, and by how many times that grows: one may be kept for a good reason."""


@final
class GraphsProbe(Probe):
    """Marks the graph of every forward, and finds those that outlive what they were built for.

    A graph that survived three optimizer steps is out of date: the weights it was built on have changed. Graphs of
    eight batches are no last-k window any more. Before the first optimizer step nothing is concluded in training.
    """

    def _prepare(self) -> None:
        self._carried = False
        self._needed = {True: FEWEST, False: FEWEST}
        """Graphs at intervals that suffice, used ones or not; an entry goes once they are no question any more."""
        self._shortest = SHORT_CHAIN
        """Forwards that a state must have gone through without a step between them."""
        self._last: dict[int, ForwardGraph] = {}
        self._again, self._wait = 0, FIRST_WAIT
        """The batch from which on many looks may be asked for again."""
        self._ended = self._unseen = -1
        """The last batch that was looked at, and the last that was not."""
        self._saved = SavedTensors(self)
        self._idle: bool | None = None
        self._keepers = Keepers(self, self._saved)
        self._causes = self._keepers.causes
        self._tied_at = MIN_BATCHES
        """Batches with a graph of a backward with create_graph, without steps, at which somebody is looked for."""

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Looks whether the saved tensors of this model's last graph are still there."""
        last = self._last.get(id(module))
        if last is None or last.kept is None or not last.alive:
            return
        if last.steps < self.watch.optimizer_steps:  # in the same batch too: a step for each of several losses
            self._saved.look(last)
        elif module.training:
            self._saved.look_within(last)

    def on_forward_end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """Where old graphs are about to be told: asks whether this one reaches them."""
        ledger = self.watch.ledger
        mark = ledger.current
        if mark is None:
            return
        self._last[mark.module] = mark  # in eval mode too: an input is optimized through a frozen model
        if ledger.oldest < mark.batch - 1:
            mark.line = call_site()
            if self._is_about_to_tell(mark.training and not self.watch.trains_nothing, output):
                self.watch.calling.update(map(function_key, user_frames(sys._getframe(1))))

    def on_stem_end(self, module: nn.Module, output: object) -> None:
        """Likewise for a state that only the inside of the model carries."""
        watch = self.watch
        if watch.ledger.oldest < watch.batch - 1:
            self._is_about_to_tell(module.training and not watch.trains_nothing, output)

    def on_batch_end(self) -> None:
        """Concludes."""
        if self._saved.open:
            self._saved.conclude()
        if len(self._last) > 64:
            self._last.clear()
        ledger, batch = self.watch.ledger, self.watch.batch
        if not self._keepers.trained:
            self._keepers.trained = any(mark.used and mark.training for mark in ledger.died)
        if batch > self._ended + 1:
            self._unseen = batch - 1
        self._ended = batch
        if ledger.oldest >= batch - 1:
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
                cause.seen({mark.batch for mark in marks}, batch)
                if cause.alive >= cause.again and (training or self._certain()):
                    self._look(cause, marks, training)
        self._look_for_tied()
        for used, needed in tuple(self._needed.items()):
            if len(self.watch.ledger.live) >= needed:
                self._look_for_few(used, needed)
        first = self._causes[True].first
        if len(self.watch.ledger.live) >= (first.again if first is not None else self._shortest):
            self._look_for_chain()

    def on_stage_end(self, stage: Stage) -> None:
        """What was to be asked in the next batch is asked now."""
        self._saved.conclude()
        for training, cause in tuple(self._keepers.unnamed.items()):
            old = [mark for mark in self._old(training) if self._causes[training].of(mark) is cause]
            if old:
                self._look(cause, old, training)

    def on_run_end(self) -> None:
        """Counts what was told once more."""
        watch = self.watch
        for causes in self._causes.values():
            for fact in causes.counted_at_end(watch.batch, self._ended, watch.ledger.followed):
                self.report(fact)

    def remove(self) -> None:
        """Forgets the last graphs."""
        self._last.clear()

    # Old graphs

    def _look_again_soon(self, oldest: ForwardGraph) -> None:
        """One graph that outlived many batches says as much as several that came in a row: the next looks tell."""
        watch = self.watch
        if watch.batch - oldest.batch >= LONG_LIVED and watch.batch >= self._again:
            self._again, self._wait = watch.batch + self._wait, self._wait * LONGER
            watch.look_closely(LOOKS, surely=True)

    def _look(self, cause: LeakGroup, old: list[ForwardGraph], training: bool) -> None:
        """Of graphs that count to one cause; whether a later one is carried does not depend on the first."""
        if _are_one_step(old):
            return
        is_first = self._causes[training].first in (None, cause)
        carried = self._carried if is_first else cause.carried
        self._keepers.diagnose(old, {mark.batch for mark in old}, training, carried=carried)

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

    def _old(self, training: bool) -> list[ForwardGraph]:
        """The marks of graphs that should be gone; those of evaluation count from the next batch on.

        Forwards in training mode are evaluation's where nothing is trained.
        """
        watch = self.watch
        steps = watch.optimizer_steps
        found = []
        for mark in list(watch.ledger.live.values()):
            if mark.used and mark.training:
                self._keepers.trained = True
            if mark.batch >= watch.batch - 1:
                continue
            if steps - mark.steps >= MIN_STEPS:
                if training:
                    found.append(mark)
            elif not (training or mark.used or (mark.training and not watch.trains_nothing)):
                found.append(mark)
        return found

    def _certain(self) -> bool:
        """Whether nothing legitimate holds graphs of evaluation: without a step yet, only where nothing can train."""
        watch = self.watch
        if watch.lightning:
            return watch.stage.evaluates
        if watch.optimizer_steps and self._keepers.trained:
            return True
        if self._idle is None:
            self._idle = not is_optimized(watch.models, watch.optimizers)
        return self._idle

    def _is_known(self) -> bool:
        """Whether training's first cause was examined, or its holder is being asked for."""
        return self._causes[True].first is not None or True in self._keepers.unnamed

    def _look_for_few(self, used: bool, needed: int) -> None:
        """Of what is kept once in some batches: waiting for as many as of what is kept in each would take long."""
        watch = self.watch
        if watch.stage is not Stage.TRAIN or self._is_known() or (self._carried and used):
            return
        live, steps = list(watch.ledger.live.values()), watch.optimizer_steps
        found = find_regular(live, used=used, batch=watch.batch, steps=steps, unseen=self._unseen)
        if found is not None and len(found.batches) >= needed and not _are_one_step(found.marks):
            length = len(found.marks) if found.unseen else 0
            asks = functools.partial(graphs_needed, length=length, in_steps=found.in_steps, carried=self._carried)
            more = self._keepers.diagnose(found.marks, found.batches, True, carried=self._carried, asks=asks)
            if more is not None and more > needed:
                self._needed[used] = more
            else:
                self._needed.pop(used)

    def _look_for_tied(self) -> None:
        """Of tensors whose gradients carry a graph, which nobody steps: a fit that is thrown away with its grad."""
        watch = self.watch
        marks = [mark for mark in list(watch.ledger.live.values()) if mark.created and mark.batch < watch.batch - 1]
        if len({mark.batch for mark in marks}) < self._tied_at or self._is_known():
            return
        self._tied_at *= AGAIN
        if watch.optimizer_steps >= MIN_STEPS:
            return  # then they are found by the steps that they survived
        gc.collect()
        marks = [mark for mark in marks if mark.alive]
        tied = tied_gradients(tied_marks(marks), watch) if len({mark.batch for mark in marks}) >= MIN_BATCHES else None
        reach = reach_of(marks)
        if tied is not None and not self.holders(reach, graph=True, passes=reach.passes, stage=tied.stage):
            self.report(tied)

    def _look_for_chain(self) -> None:
        """Of a state that is carried over segments without a step between them: those of a document."""
        before = self.watch.batch - 1
        marks = [mark for mark in list(self.watch.ledger.live.values()) if mark.batch < before]
        chain = find_chain(marks, self._shortest)
        if chain:
            batches = {mark.batch for mark in chain}
            asks = chain_needed if len(batches) < MIN_CHAIN else None
            self._keepers.diagnose(chain, batches, True, carried=True, asks=asks)
            self._carried = self._causes[True].first is not None
            self._shortest = MIN_CHAIN


def _are_one_step(marks: list[ForwardGraph]) -> bool:
    """Whether they are a roll-out or micro-batches of one step: a variable with its loss keeps them until the next."""
    return all(mark.used for mark in marks) and len({mark.spent for mark in marks}) == 1


def _reaches(output: object, old: list[ForwardGraph]) -> bool:
    """Whether the graph of what a forward gave goes through one of some forwards' graphs."""
    reach = reach_of(old)
    return any(reach(tensor) is not None for tensor in tensors_in(output))
