"""Derivatives with ``create_graph=True`` that nothing differentiates, as for forces in evaluation."""

from __future__ import annotations

import inspect
import linecache
import re
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, final

from torch import nn

from memguard.evidence.forward_outputs import graph_bytes
from memguard.evidence.graph_tracker import ForwardGraph
from memguard.evidence.interface import Probe, ProbeContext
from memguard.records.facts import NOWHERE, Fact, Place, UnusedGraphs
from memguard.source.stores import assigned_at

MIN_UNUSED = 3
"""Answers whose graphs died without a backward."""
LEAST_BYTES = 1024**2
"""What one of them held; a graph whose tensors the derivative freed holds little."""
MOST_MODELS = 64
"""Models whose code is read."""
_WITH_GRAPH = re.compile(r"\bcreate_graph\s*=\s*True\b")


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
class _Outside:
    """What is known of a model of whose answers derivatives are taken outside of it."""

    proven: bool = False
    """Whether in training a backward after the derivative was seen to come by: then it would be in evaluation too."""
    forwards: int = 0
    unused: int = 0
    first_batch: int | None = None
    """The first one of these."""
    bytes: int | None = None


@final
class DerivativesProbe(Probe):
    """Looks for models whose forward takes a derivative in eval mode, and answers with a graph that dies unused.

    The forward's own graph is needed there, so no_grad is no remedy; the derivative's is for training alone. One
    backward through an answer silences the model for good. So does a second derivative in the same forward: it needs
    the graph of the first.

    A derivative of an answer that is taken outside of the model is judged alike, where backwards in training show that
    one through the derivative's graph is seen.
    """

    name: ClassVar[str] = "derivatives"

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._models: dict[int, _Model | None] = {}
        """None for a model that is no such one, or has nothing more to tell."""
        self._outside: dict[int, _Outside | None] = {}
        """Likewise, of those whose derivatives are taken outside of them."""

    def on_forward_end(self, module: nn.Module, args: tuple[object, ...], output: object) -> None:
        """Sizes what the second answer of such a model holds."""
        mark = self.watch.ledger.current
        if mark is None or mark.training or mark.outer is not None:
            return
        number = id(module)
        if (outside := self._outside.get(number)) is not None:
            outside.forwards += 1
            if outside.unused and outside.bytes is None:
                outside.bytes = graph_bytes(module, output) or 0
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

    def on_batch_end(self) -> None:
        """Looks at the answers that died, and concludes."""
        if self.watch.ledger.is_ordinary:
            return  # what died was of training, and no derivative with a graph was taken of it
        for mark in self.watch.ledger.died:
            if mark.created is not None and mark.used_late and mark.stemmed and mark.outer is None:
                self._taken_outside(mark, mark.created)
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
                        batch=self.watch.batch,
                        stage=self.watch.stage,
                        place=model.place,
                        module=model.name,
                        count=model.unused,
                        forwards=model.forwards,
                        first_batch=model.first_batch,
                        bytes=model.bytes,
                        derivative=True,
                    )
                )

    def _taken_outside(self, mark: ForwardGraph, place: Place) -> None:
        """A derivative with a graph was taken of an answer, whose own graph died with it."""
        model = self._outside.setdefault(mark.module, _Outside())
        if model is None:
            return
        if mark.uses > 1:
            model.proven = True
            if not mark.training:
                self._outside[mark.module] = None
            return
        if not mark.training:
            model.unused += 1
            model.first_batch = mark.batch if model.first_batch is None else model.first_batch
        if mark.training or not model.proven or model.unused < MIN_UNUSED or model.bytes is None:
            return
        self._outside[mark.module] = None
        module = next((root for root in self.watch.models if id(root) == mark.module), None)
        if module is None or model.bytes < LEAST_BYTES or self.watch.differentiates(module):
            return
        name, source = _assigned(place)
        self.report(
            UnusedGraphs(
                batch=self.watch.batch,
                stage=self.watch.stage,
                place=replace(place, holder=name, source=source),
                module=type(module).__name__,
                count=model.unused,
                forwards=model.forwards,
                first_batch=model.first_batch,
                bytes=model.bytes,
                derivative=True,
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
