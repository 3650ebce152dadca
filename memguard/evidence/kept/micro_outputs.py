"""Outputs of earlier micro-batches that are kept, without a graph, until the optimizer steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, final

import torch
from torch import nn

from memguard.evidence.forward_outputs import large_storages
from memguard.evidence.graph_tracker import ForwardGraph
from memguard.evidence.interface import Probe, ProbeContext
from memguard.evidence.minimum_sizes import least_of_peak
from memguard.evidence.naming.holders import Holder
from memguard.records.facts import Fact, MicroBatchOutputs, Place
from memguard.records.stats import Stage
from memguard.torch_objects.storages import StorageRef, storage_key

FEWEST = 3
"""Micro-batches before the last one whose outputs are alive."""
MORE = 2
"""They are reported again when so many times more are alive."""
MIN_BYTES = 64 * 1024
"""Smaller outputs are not followed."""
MOST = 1024
"""Outputs of one step that are followed."""
_OUTPUTS, _STEP = "on_forward_end", "on_optimizer_step_start"


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

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
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
            if self._forwards <= FEWEST:
                self.unsubscribe(_OUTPUTS)
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
        least, record = least_of_peak(watch.record), watch.record
        if least is None or record is None or held < least or not (holders := self._find(waiting)):
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
                peak_bytes=record.allocated_peak_bytes or held,
            )
        )
