"""Derivatives with ``create_graph=True`` that nothing differentiates, as for forces in evaluation."""

from __future__ import annotations

import linecache
import re
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import nn

from memguard.autograd.graph import held_bytes, leaves_of
from memguard.evidence.forward_outputs import graph_bytes
from memguard.evidence.graph_tracker import Derivative, ForwardGraph
from memguard.evidence.interface import Probe
from memguard.evidence.minimum_sizes import least_of_remark
from memguard.records.facts import Place, UnusedGraphs
from memguard.source.stores import assigned_at
from memguard.torch_objects.storages import storages_of

MIN_UNUSED = 3
"""Derivatives of one line in evaluation that died without a backward."""
MIN_IN_TRAINING, MOST_OPEN = 8, 256
"""The same in training, with none that was used; and those alive that are followed."""
MOST_SIZED = 8
"""Graphs of a model that are sized in training: the last of some inner steps has all of them."""
LEAST_BYTES = 1024**2
"""What one of them held; a graph whose tensors the derivative freed holds little."""
_BACKWARD = re.compile(r"\b(manual_)?backward\s*\(")


@final
@dataclass(slots=True)
class _Line:
    """What is known of a line that takes derivatives, in one mode of the model."""

    unused: int = 0
    first_batch: int | None = None
    """The first one of these."""


@final
class DerivativesProbe(Probe):
    """Looks for lines whose derivatives all die without a backward.

    Forces and residuals in an evaluation, inside of the model or outside; in training first-order inner steps, or a
    penalty that is only logged. Once a derivative is used, its line is no longer judged in that mode of the model.
    """

    def _prepare(self) -> None:
        self._open: list[tuple[ForwardGraph, Derivative]] = []
        """Derivatives that may still be used."""
        self._lines: dict[tuple[Place, bool], _Line | None] = {}
        """By line, and whether the model trains; None once a derivative was used, or the line was reported."""
        self._sizes: dict[tuple[int, bool], list[int]] = {}
        """Bytes of the next graphs of a model, by its id and whether it trains; only of models whose size is wanted."""

    def on_forward_end(self, module: nn.Module, args: tuple[object, ...], output: object) -> None:
        """Sizes what the next answers of a model hold, where that is asked for."""
        mark = self.watch.ledger.current
        if mark is None or mark.outer is not None:
            return
        sizes = self._sizes.get((id(module), mark.training))
        if sizes is not None and len(sizes) < (MOST_SIZED if mark.training else 1):
            sizes.append(graph_bytes(module, output) or 0)

    def on_backward_start(self, loss: torch.Tensor) -> None:
        """Where there are no modules: sizes a few graphs from the loss on, where they are asked for."""
        sizes = self._sizes.get((0, True))
        if sizes is not None and len(sizes) < MOST_SIZED:
            sizes.append(sum(held_bytes(loss, storages_of(leaves_of((loss.grad_fn,)))).values()))

    def on_batch_end(self) -> None:
        """Counts what became of the derivatives that were taken of forwards that died."""
        if self.watch.ledger.is_ordinary and not self._open:
            return  # then what died had no derivative with a graph
        for mark in self.watch.ledger.died:
            if mark.derivatives and mark.outer is None:
                self._open += [(mark, derivative) for derivative in mark.derivatives]
        waiting, self._open = self._open[-MOST_OPEN:], []
        for mark, derivative in waiting:
            key = derivative.place, mark.training
            line = self._lines.setdefault(key, _Line())
            if line is None:
                continue
            if derivative.used:
                self._lines[key] = None
            elif derivative.alive:
                self._open.append((mark, derivative))
            else:
                line.unused += 1
                line.first_batch = mark.batch if line.first_batch is None else line.first_batch
                sizes = self._sizes.setdefault((mark.module, mark.training), [])
                enough = (MIN_IN_TRAINING, MOST_SIZED) if mark.training else (MIN_UNUSED, 1)
                if line.unused >= enough[0] and len(sizes) >= enough[1]:
                    self._lines[key] = None
                    self._tell(mark, derivative.place, line, max(sizes))

    def _tell(self, mark: ForwardGraph, place: Place, line: _Line, nbytes: int) -> None:
        watch, record = self.watch, self.watch.record
        module = next((root for root in watch.models if id(root) == mark.module), None)
        least = max(LEAST_BYTES, (least_of_remark(record) or 0) if mark.training else 0)
        # After a backward with create_graph the gradients keep the graph: MG104 reports that.
        is_backward = _BACKWARD.search(linecache.getline(place.file or "", place.line or 0))
        if nbytes < least or is_backward or (module is None and mark.module):
            return
        name, source = assigned_at(place.file or "", place.line or 0) or (None, None)
        self.report(
            UnusedGraphs(
                **watch.now,
                place=replace(place, holder=name, source=source),
                module=type(module).__name__ if module is not None else "the loss",
                count=line.unused,
                forwards=line.unused,
                first_batch=line.first_batch,
                bytes=nbytes,
                derivative=True,
                training=mark.training,
                peak_bytes=record.allocated_peak_bytes if record is not None else None,
            )
        )
