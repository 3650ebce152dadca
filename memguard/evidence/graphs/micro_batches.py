"""What micro-batches keep alive until the optimizer steps: graphs that wait for no backward, and detached outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, final

import torch
from torch import nn

from memguard.evidence.graph_tracker import ForwardGraph
from memguard.evidence.graphs.graph_contents import GraphContents, who_holds
from memguard.evidence.interface import Probe
from memguard.evidence.naming.holders import Holder
from memguard.evidence.sizes import large_storages
from memguard.records.facts import MicroBatchGraphs, MicroBatchOutputs, Place
from memguard.records.stats import Stage
from memguard.thresholds import least_of_peak, least_of_remark, some_of
from memguard.torch_objects.storages import StorageRef, owned_storages, storage_key

FEWEST = 3
"""Micro-batches before the last one: of the last, and of the one before, a loop's variables may hold the graph."""
MORE = 2
"""They are examined again when so many times more are alive."""
EARLY, PRESSING = 6, 0.5
"""Micro-batches after which they are reported before the step; on a device of which such a share is taken, `FEWEST`."""
LOOKS, MOST_LOOKS = 16, 1024
"""Batches that are sampled while such graphs are alive, until the step; so many in a run at most."""
MOST_DOUBTS = 16
"""Steps at which graphs without a backward are followed; in the plan of a pipeline each of them gets one."""
IN_USE = 2
"""Parameters and gradients: so many times the weights are allocated at least, where the device reports no peak."""
_STEP = "on_optimizer_step_start"


@final
class MicroBatchesProbe(Probe):
    """Follows the graphs between two optimizer steps.

    A graph whose backward ran before a later forward of the same model, and that is alive as the optimizer steps, waits
    for nothing. One that another backward runs through meanwhile is a plan (an inner loop, a penalty), and so is one
    whose backward comes after the later forwards (a pipeline's schedule, a contrastive loss). Many are reported before
    the step, which a device that fills with them never reaches: their backward freed what a second one would need.

    Graphs between them through which none ran, as of a second forward for a metric, may still get one, and so may
    those that a backward kept (``retain_graph=True``): they are reported as the next step begins, if they died before
    it and none came. Those that are still there, as a roll-out's log-probabilities with their graph, are reported if
    the step before has changed weights that they need: no backward can run through them any more.
    """

    def _prepare(self) -> None:
        self.deaf = frozenset({_STEP})  # an ordinary loop's steps are none of its business, and stay fast
        self._spent: dict[int, tuple[ForwardGraph, int]] = {}
        """Marks whose backward ran before a later forward, and the backwards through each at that time."""
        self._steps = 0
        """Optimizer steps before the marks in `_spent`."""
        self._needed, self._looks = FEWEST, 0
        self._early = FEWEST
        """Graphs at which it is asked whether to self.report before the step."""
        self._has_searched = False
        self._filled: Place | None = None
        """Where they were collected in this step: the function may have returned by the time the optimizer steps."""
        self._unused: dict[int, tuple[ForwardGraph, int]] = {}
        """Marks of this step that had no backward at a later forward, and how many had one when each was first seen."""
        self._suspects: tuple[dict[ForwardGraph, int], MicroBatchGraphs | None] | None = None
        """Marks of the step before that may get a backward, with those they had; what is reported if they die."""
        self._doubts_left = MOST_DOUBTS

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Notes which graphs of this step are alive though a backward ran through them."""
        watch, spent = self.watch, self._spent
        if watch.stage is not Stage.TRAIN or len(watch.ledger.live) < FEWEST:
            return
        steps = watch.optimizer_steps
        if steps != self._steps:
            self._steps = steps
            self._forget_step()
            self._conclude_suspects(at_step=False)
        for key, mark in list(watch.ledger.live.items()):
            if mark.steps == steps and mark.training and mark.module:
                if mark.used and key not in spent:
                    spent[key] = (mark, mark.uses)
                elif not mark.used and self._doubts_left:
                    self._unused.setdefault(key, (mark, len(spent)))
        if len(spent) < self._needed:
            if self._doubts_left and self._without_backward():
                self._expect_step()
            return
        self._expect_step()
        if not self._has_searched and len(marks := self._waiting(or_retained=True)) >= self._needed:
            self._has_searched = True
            holders = self._find(marks)[0]
            self._filled = next((holder.place for holder in holders if holder.grows and holder.place.holder), None)
        early = max(self._early, self._needed)
        if len(spent) >= early and len(marks := self._waiting()) >= early:
            self._early = MORE * len(marks)
            total, taken = watch.device_total_bytes or 0, watch.read().allocated_bytes or 0
            if len(marks) >= EARLY or taken > PRESSING * total > 0:  # the step may never come
                self._conclude(marks)

    def on_optimizer_step_start(self, optimizer: torch.optim.Optimizer) -> None:
        """Reports who holds those that are still alive."""
        self._conclude_suspects(at_step=True)
        if len(self._spent) >= self._needed and len(marks := self._waiting()) >= self._needed:
            self._needed = MORE * len(marks)
            self._conclude(marks, at_step=True)
        elif self._doubts_left:
            # While others of the same step had theirs: a policy's own probabilities of what it sampled, say.
            unused = max(self._without_backward(apart=len(self._spent) < FEWEST), key=len, default=[])
            marks = max(unused, self._waiting(or_retained=True), key=len)
            fact = self._describe(marks, at_step=True, unused=marks is unused) if len(marks) >= FEWEST else None
            if fact is None:
                marks = max(self._without_backward(), key=len, default=[])
            if marks:
                self._doubts_left -= 1
                self._suspects = {mark: mark.uses for mark in marks}, fact
        self._forget_step()
        self.unsubscribe(_STEP)

    def _expect_step(self) -> None:
        """The step that comes is heard, and sampled."""
        self.hear(_STEP)
        if self._looks < MOST_LOOKS and self.watch.batch + 1 >= self.watch.dense_until:
            self._looks += LOOKS
            self.watch.look_closely(LOOKS)

    def _without_backward(self, *, apart: bool = False) -> list[list[ForwardGraph]]:
        """Those that are alive without a backward, a few of one model together.

        Args:
            apart: Only such as had backwards of others between them.
        """
        by_module: dict[int, list[tuple[ForwardGraph, int]]] = {}
        for mark, backwards in self._unused.values():
            if mark.alive and not mark.used:
                by_module.setdefault(mark.module, []).append((mark, backwards))
        found = ({times for _, times in some} if apart else some for some in by_module.values())
        return [[m for m, _ in some] for some, few in zip(by_module.values(), found, strict=True) if len(few) >= FEWEST]

    def _conclude_suspects(self, *, at_step: bool) -> None:
        """Reports those of the step before, if they waited for nothing.

        Args:
            at_step: Whether the next step begins; else its first forward does.
        """
        suspects = self._suspects
        if suspects is None:
            return
        alive, fact = [mark for mark in suspects[0] if mark.alive], suspects[1]
        if at_step:
            self._suspects, fact = None, fact if len(alive) < FEWEST else None
        else:
            fact = self._describe(alive, unused=True, stale=True) if len(alive) >= FEWEST else None
        if fact is not None and all(mark.uses == uses for mark, uses in suspects[0].items()):
            self._suspects, self._doubts_left = None, 0
            self.report(fact)

    def _forget_step(self) -> None:
        self._filled, self._has_searched = None, False
        self._spent.clear()
        self._unused.clear()

    def _waiting(self, *, or_retained: bool = False) -> list[ForwardGraph]:
        """Those of one model that are alive, and that no further backward ran through.

        Where a model's parts are called in its place, a decoder for each task, those of all parts.
        """
        steps = self.watch.optimizer_steps
        by_module: dict[int, list[ForwardGraph]] = {}
        of_all: list[ForwardGraph] = []
        for mark, uses in self._spent.values():
            is_spent = mark.uses == uses and mark.created is None and (or_retained or mark.kept is None)
            if mark.alive and mark.steps == steps and is_spent:
                by_module.setdefault(mark.module, []).append(mark)
                if mark.outer is None:
                    of_all.append(mark)
        most = max(by_module.values(), key=len, default=[])
        return most if len(most) >= FEWEST else of_all

    def _find(self, marks: list[ForwardGraph], *, dates: bool = False) -> tuple[list[Holder], GraphContents]:
        """Who collects some graphs, and what these hold."""
        found, held = who_holds(self, marks, stage=Stage.TRAIN, dates=dates)
        return [holder for holder in found if holder.grows or holder.length >= FEWEST], held

    def _conclude(self, marks: list[ForwardGraph], *, at_step: bool = False) -> None:
        if (fact := self._describe(marks, at_step=at_step)) is not None:
            self.report(fact)

    def _describe(
        self, marks: list[ForwardGraph], *, at_step: bool = False, unused: bool = False, stale: bool = False
    ) -> MicroBatchGraphs | None:
        """Who keeps these graphs; None where that is too little, nothing collects them, or one may be used yet."""
        watch = self.watch
        holders, contents = self._find(marks, dates=stale)
        held = contents.total()
        least = least_of_remark(watch.peak_bytes)
        if least is None:
            weights = sum(owned_storages(watch.models).values())
            least = some_of(IN_USE * weights + held)
        if held < least or not holders or (stale and not contents.spoilt):
            return None
        return MicroBatchGraphs(
            batch=watch.batch,
            stage=Stage.TRAIN,
            place=(None if unused else self._filled) or holders[0].place,
            graphs=len(marks),
            of_parts=len({mark.module for mark in marks}) > 1,
            bytes=held,
            saves=contents.saves,
            at_step=at_step,
            unused=unused,
            peak_bytes=watch.peak_bytes,
        )


MIN_BYTES = 64 * 1024
"""Smaller outputs are not followed."""
MOST = 1024
"""Outputs of one step that are followed."""
_OUTPUTS = "on_forward_end"


class _Output(NamedTuple):
    mark: ForwardGraph
    ref: Any
    key: int
    nbytes: int


@final
class MicroOutputsProbe(Probe):
    """Follows the storages of a step's outputs, where several forwards and backwards come before the step.

    Of interest is an output whose backward ran before a later forward, and whose storage is alive as the optimizer
    steps though its graph is not: detached logits that wait for a metric. One that no backward has used is a plan.
    """

    def _prepare(self) -> None:
        self.deaf = frozenset({_OUTPUTS, _STEP})
        self._steps, self._forwards = -1, 0
        self._outputs: list[_Output] = []
        self._spent: dict[int, _Output] = {}
        """By their place in `_outputs`: those whose backward ran before a later forward."""
        self._needed = FEWEST
        self._has_searched = False
        self._filled: Place | None = None
        """Where they were collected: the function may have returned by the time the optimizer steps."""

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Counts the forwards since the last step, and notes which outputs have served."""
        watch = self.watch
        if watch.stage is not Stage.TRAIN:
            return
        if watch.optimizer_steps != self._steps:
            self._steps, self._forwards = watch.optimizer_steps, 0
            self._forget_step()
        self._forwards += 1
        if self._forwards == 2:
            self.hear(_OUTPUTS)
        if not self._outputs:
            return
        for number, output in enumerate(self._outputs):
            if output.mark.used and number not in self._spent:
                self._spent[number] = output
        if len(self._spent) >= self._needed and not self._has_searched and len(waiting := self._waiting()) >= FEWEST:
            self._has_searched = True
            self.hear(_STEP)
            self._filled = next((h.place for h in self._find(waiting) if h.grows and h.place.holder), None)

    def on_forward_end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """Notes the storages of an output that has a graph."""
        mark = self.watch.ledger.current
        if mark is None or mark.module != id(module) or not mark.training or len(self._outputs) >= MOST:
            return
        for storage, nbytes in large_storages(output, MIN_BYTES):
            self._outputs.append(_Output(mark, StorageRef(storage), storage._cdata, nbytes))

    def on_optimizer_step_start(self, optimizer: torch.optim.Optimizer) -> None:
        """Reports who holds those that are still alive."""
        waiting = self._waiting()
        if len({id(output.mark) for output in waiting}) >= self._needed:
            self._conclude(waiting)
        self._forget_step()
        self.unsubscribe(_STEP)

    def _forget_step(self) -> None:
        self._filled, self._has_searched = None, False
        self._outputs.clear()
        self._spent.clear()

    def _waiting(self) -> list[_Output]:
        """Those that are alive, though their graphs are not: what has a graph is the graph's matter."""
        return [each for each in self._spent.values() if not (each.mark.alive or each.ref.expired())]

    def _find(self, waiting: list[_Output]) -> list[Holder]:
        keys = {output.key for output in waiting}

        def judge(tensor: torch.Tensor) -> int | None:
            key = storage_key(tensor) if tensor.grad_fn is None else None
            return key[1] if key is not None and key[0] in keys else None

        found = self.holders(judge, graph=False, stage=Stage.TRAIN, collector=False)
        return [holder for holder in found if holder.grows or holder.length >= FEWEST]

    def _conclude(self, waiting: list[_Output]) -> None:
        watch, held = self.watch, sum({output.key: output.nbytes for output in waiting}.values())
        peak = watch.peak_bytes
        least = least_of_peak(peak)
        if least is None or held < least or not (holders := self._find(waiting)):
            return
        count = len({id(output.mark) for output in waiting})
        # Of the first step that accumulates, the first forward was not heard.
        self._needed = count + 1 if self._needed == FEWEST else MORE * count
        self.report(
            MicroBatchOutputs(
                batch=watch.batch,
                stage=Stage.TRAIN,
                place=self._filled or holders[0].place,
                outputs=count,
                bytes=held,
                peak_bytes=peak or held,
            )
        )
