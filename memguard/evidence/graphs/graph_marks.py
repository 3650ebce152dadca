"""Marks the autograd graph of every forward for the probes that follow graphs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any, final

import torch
from torch import nn

from memguard.autograd.graph import iter_nodes
from memguard.evidence.graph_tracker import ForwardGraph
from memguard.evidence.interface import Probe, ProbeContext
from memguard.heap.containers import tensors_in
from memguard.records.facts import Fact
from memguard.records.stats import Stage

MAX_NODES, MAX_ENDS = 256, 8
"""Nodes of a bare loss's graph that are visited, and marked, to find its upstream end."""


REACHED = 3
"""Backwards that arrived at a model's stem, before outputs are not asked any more."""


@final
class MarksProbe(Probe):
    """Keeps the ledger (`ProbeContext.ledger`); stands first among the probes, so that the others find it up to date.

    A graph is marked at its upstream end (the stem), for what an intermediate activation holds, and at the model's
    output, where a backward enters it.
    """

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._open: list[ForwardGraph] = []
        self._reached: dict[int, int] = {}
        """Training forwards of each model whose backward arrived at the stem; enough of them, and it alone is asked."""

    def on_batch_end(self) -> None:
        """Takes what died since; forwards that failed without an end are forgotten."""
        if self._open:
            self._open.clear()
        ledger, reached = self.watch.ledger, self._reached
        ledger.settle()
        for mark in ledger.died:
            if mark.stemmed and mark.uses and mark.training and (times := reached.get(mark.module, 0)) < REACHED:
                reached[mark.module] = times + 1

    def on_stage_end(self, stage: Stage) -> None:
        """Takes what died since."""
        self.watch.ledger.settle()

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Opens the mark of this forward."""
        watch, opened = self.watch, self._open
        mark = ForwardGraph(
            module=id(module),
            batch=watch.batch,
            stage=watch.stage,
            training=module.training,
            steps=watch.optimizer_steps,
        )
        if opened:
            mark.outer = opened[-1]
        opened.append(mark)

    def on_stem_end(self, module: nn.Module, output: object) -> None:
        """Marks the graph at its upstream end."""
        if self._open and torch.is_grad_enabled():
            mark, ledger = self._open[-1], self.watch.ledger
            if type(output) is torch.Tensor and not mark.alive:
                if (node := output.grad_fn) is not None:
                    ledger.mark_node(node, mark)
            else:
                ledger.mark(tensors_in(output, 3), mark)
            mark.stemmed = mark.alive

    def on_forward_end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """Marks the graph at the model's output."""
        watch, mark, opened, key = self.watch, None, self._open, id(module)
        ledger = watch.ledger
        ledger.follows(watch.stage, watch.batch)
        while opened:
            mark = opened.pop()
            if mark.module == key:
                break
        ledger.current = None
        if mark is None or output is None or not torch.is_grad_enabled():
            return
        if mark.stemmed and not mark.alive:
            mark.stemmed = False  # that was a teacher's: the answer does not come from it
        hook = not (mark.stemmed and mark.training and self._reached.get(mark.module, 0) >= REACHED)
        hook = hook or mark.module in watch.doubted
        if type(output) is torch.Tensor and mark.alive:  # as `mark` does it
            node: Any = output.grad_fn
            if node is not None and ledger.mark_node(node, mark, hook=hook) and mark.output is None:
                mark.output = weakref.ref(output)
        else:
            ledger.mark(tensors_in(output), mark, output=True, hook=hook)
        mark.answered = True
        if mark.alive:
            ledger.current = mark

    def on_backward_start(self, loss: torch.Tensor) -> None:
        """Marks the loss, where the integration shows it: it may be all that is kept."""
        watch = self.watch
        mark = ForwardGraph(module=0, batch=watch.batch, stage=watch.stage, training=True, steps=watch.optimizer_steps)
        mark.answered = True
        watch.ledger.mark(iter((loss,)), mark)
        if not watch.models and loss.grad_fn is not None:  # no forward will mark its upstream end
            for node in _upstream_ends(loss.grad_fn):
                watch.ledger.mark_node(node, mark)

    def remove(self) -> None:
        """Forgets all graphs."""
        self.watch.ledger.forget()
        self._open.clear()


def _upstream_ends(node: Any) -> list[Any]:
    """Some nodes of a graph whose inputs are leaves: what an intermediate result holds goes back to one of them."""
    ends = []
    for current in iter_nodes((node,), MAX_NODES):
        inputs = [upstream for upstream, _ in current.next_functions if upstream is not None]
        if inputs and any(not upstream.next_functions for upstream in inputs):
            ends.append(current)
            if len(ends) == MAX_ENDS:
                break
    return ends
