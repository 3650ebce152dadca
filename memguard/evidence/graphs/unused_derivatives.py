"""Derivatives with ``create_graph=True`` that nothing differentiates, as for forces in evaluation."""

from __future__ import annotations

import inspect
import linecache
import re
import weakref
from dataclasses import dataclass, replace
from typing import final

import torch
from torch import nn

from memguard.autograd.graph import held_bytes, leaves_of
from memguard.evidence.forward_outputs import graph_bytes
from memguard.evidence.graph_tracker import Derivative, ForwardGraph
from memguard.evidence.interface import Probe
from memguard.evidence.minimum_sizes import least_of_remark
from memguard.records.facts import NOWHERE, Place, UnusedGraphs
from memguard.source.stores import assigned_at
from memguard.torch_objects.storages import storages_of

MIN_UNUSED = 3
"""Answers whose graphs died without a backward."""
MIN_IN_TRAINING, MOST_OPEN = 8, 256
"""The same of derivatives of one line in training, with none that was used; and those alive that are followed."""
MOST_SIZED = 8
"""Graphs of a model that are sized in training: the last of some inner steps has all of them."""
LEAST_BYTES = 1024**2
"""What one of them held; a graph whose tensors the derivative freed holds little."""
MOST_MODELS = 64
"""Models whose code is read."""
_WITH_GRAPH = re.compile(r"\bcreate_graph\s*=\s*True\b")
_BACKWARD = re.compile(r"\b(manual_)?backward\s*\(")


@final
@dataclass(slots=True)
class _Model:
    """What is known of one model that differentiates inside itself in eval mode."""

    ref: weakref.ref[nn.Module]
    name: str
    forwards: int = 0
    unused: int = 0
    first_batch: int | None = None
    """The first one of these."""
    bytes: int | None = None
    place: Place = NOWHERE


@final
@dataclass(slots=True)
class _Line:
    """What is known of a line that takes derivatives of answers, outside of the model, in one mode of it."""

    unused: int = 0
    first_batch: int | None = None
    """The first one of these."""


@final
class DerivativesProbe(Probe):
    """Looks for models whose forward takes a derivative in eval mode, and answers with a graph that dies unused.

    The forward's own graph is needed there, so no_grad is no remedy; the derivative's is for training alone. One
    backward through an answer silences the model for good. So does a second derivative in the same forward: it needs
    the graph of the first.

    Outside of a model a line is judged whose derivatives all die without a backward: residuals in an evaluation; in
    training first-order inner steps, or a penalty that is only logged. Once a derivative is used, its line is no longer
    judged in that mode of the model.
    """

    def _prepare(self) -> None:
        self._models: dict[int, _Model | None] = {}
        """None for a model that is no such one, or has nothing more to tell."""
        self._open: list[tuple[ForwardGraph, Derivative]] = []
        """Derivatives taken outside that may still be used."""
        self._lines: dict[tuple[Place, bool], _Line | None] = {}
        """By line, and whether the model trains; None once a derivative was used, or the line was reported."""
        self._sizes: dict[tuple[int, bool], list[int]] = {}
        """Bytes of the next graphs of a model, by its id and whether it trains; only of models whose size is wanted."""

    def on_forward_end(self, module: nn.Module, args: tuple[object, ...], output: object) -> None:
        """Sizes what the second answer of such a model holds."""
        mark, number = self.watch.ledger.current, id(module)
        if mark is None or mark.outer is not None:
            return
        sizes = self._sizes.get((number, mark.training))
        if sizes is not None and len(sizes) < (MOST_SIZED if mark.training else 1):
            sizes.append(graph_bytes(module, output) or 0)
        if mark.training:
            return
        model = self._models.get(number)
        if model is None and number in self._models:
            return
        if model is None or model.ref() is not module:
            ref = weakref.ref(module, lambda _: self._models.pop(number, None))
            own = mark.used or (len(self._models) < MOST_MODELS and self.watch.differentiates(module))
            model = self._models[number] = _Model(ref, type(module).__name__) if own else None
        if model is None:
            return
        model.forwards += 1
        if model.forwards == 2:
            model.bytes = graph_bytes(module, output)
            place = _taken_at(module, mark)
            if place is None or mark.uses > 1 or (model.bytes or 0) < LEAST_BYTES:
                self._models[number] = None
            else:
                model.place = place

    def on_backward_start(self, loss: torch.Tensor) -> None:
        """Where there are no modules: sizes a few graphs from the loss on, where they are asked for."""
        sizes = self._sizes.get((0, True))
        if sizes is not None and len(sizes) < MOST_SIZED:
            sizes.append(sum(held_bytes(loss, storages_of(leaves_of((loss.grad_fn,)))).values()))

    def on_batch_end(self) -> None:
        """Looks at the answers that died, and concludes."""
        ordinary = self.watch.ledger.is_ordinary  # then what died had no derivative with a graph
        if self._open or not ordinary:
            self._look_outside()
        if ordinary:
            return
        if not self._models or not any(self._models.values()):
            return
        for mark in self.watch.ledger.died:
            model = self._models.get(mark.module)
            if model is None or mark.training or mark.outer is not None:
                continue
            if mark.used_late:
                self._models[mark.module] = None
                continue
            model.unused += 1
            model.first_batch = mark.batch if model.first_batch is None else model.first_batch
            if model.unused >= MIN_UNUSED and model.bytes is not None:
                self._models[mark.module] = None
                self.report(
                    UnusedGraphs(
                        **self.watch.now,
                        place=model.place,
                        module=model.name,
                        count=model.unused,
                        forwards=model.forwards,
                        first_batch=model.first_batch,
                        bytes=model.bytes,
                        derivative=True,
                    )
                )

    def _look_outside(self) -> None:
        """Counts what became of the derivatives that were taken of answers."""
        for mark in self.watch.ledger.died:
            if mark.derivatives and mark.used_late and mark.outer is None:
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
        if module is not None and not mark.training and watch.differentiates(module):
            return
        name, source = _assigned(place)
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


def _assigned(place: Place) -> tuple[str | None, str | None]:
    if place.file is None or place.line is None:
        return None, None
    return assigned_at(place.file, place.line) or (None, None)


def _taken_at(module: nn.Module, mark: ForwardGraph) -> Place | None:
    """The line that takes the derivative with its graph: seen as it ran, or the only one in the forward's source."""
    place = mark.created if mark.created is not None else _in_source(module)
    if place is None or place.file is None or place.line is None:
        return None
    name, source = _assigned(place)
    return replace(place, holder=name, source=source)


def _in_source(module: nn.Module) -> Place | None:
    code = getattr(vars(type(module)).get("forward"), "__code__", None)
    if code is None:
        return None
    name = str(getattr(code, "co_qualname", code.co_name))
    lines = inspect.getblock(linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :])
    texts = enumerate((line.partition("#")[0] for line in lines), code.co_firstlineno)
    found = [number for number, text in texts if _WITH_GRAPH.search(text)]
    return Place(file=code.co_filename, line=found[0], function=name) if len(found) == 1 else None
