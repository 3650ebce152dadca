"""Graphs of evaluated models by model and by the line that called it, and which of them share one cause."""

from __future__ import annotations

import itertools
import sys
import weakref
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, final

from torch import nn

from memguard.autograd.graph import iter_nodes
from memguard.evidence.graph_tracker import KEY, ForwardGraph, ForwardToken, GraphTracker
from memguard.evidence.naming.call_stacks import Stack, asking_frame, stack_of
from memguard.evidence.sizes import graph_bytes
from memguard.heap.containers import tensors_in
from memguard.heap.frames import place_of
from memguard.heap.parameters import frozen_wholes
from memguard.records.facts import NOWHERE, Place
from memguard.source.model import SourceModel
from memguard.thresholds import LEAST
from memguard.torch_objects.module_parts import parameters_of


@final
@dataclass(slots=True)
class EvaluatedModel:
    """What is known of one model's graphs, by the mode they were built in."""

    ref: weakref.ref[nn.Module]
    name: str
    forwards: int = 0
    unused: int = 0
    used: int = 0
    beside: int = 0
    """Unused graphs of batches in which another model was trained."""
    row: tuple[int, int] = (-1, 0)
    """Of a model that was never trained: optimizer steps before its last unused graphs, and how many of these came in a
    row; -1 once another model's batch came next to one: that counts for all, as of a reference model's roll-out."""
    undecided: set[int] = field(default_factory=set)
    """Optimizer steps before unused graphs of evaluation of which nobody knows yet who makes the next one."""
    decided: int = -1
    """The last of these of which that is known: the graphs of one row count once."""
    batches: int = 0
    """Batches in which unused graphs were built."""
    first_batch: int | None = None
    """The first one of them."""
    last_batch: int = -1
    """The last one."""
    last_used: int = -1
    """The last batch of which a backward used a graph."""
    bytes: int | None = None
    sized: bool = False
    place: Place = NOWHERE
    asked: Place = NOWHERE
    judge: tuple[str | None, str | None] | None = None
    """The function, no method of a model, in which its calls end up: what evaluates."""
    captive: Place | None = None
    """A line that asks, in a function that keeps the graph to itself: no backward can come any more."""
    kept: bool = False
    """Whether graphs of its evaluation were met that somebody keeps."""
    told: int = 0
    frozen: bool = False
    """Whether it was told as a frozen model: told again it stays one."""
    optimized: bool | None = None
    differentiates: bool | None = None
    """Whether its forward takes a derivative: then it needs a graph, though no backward comes by our marks."""
    stacks: list[Stack] = field(default_factory=list)
    sites: dict[Place, list[int]] = field(default_factory=dict)
    """Graphs that a backward used and that none did, by the line that called the model."""
    askers: dict[Place, Place] = field(default_factory=dict)
    """Where those calls were asked for."""

    def decide(self, steppers: Mapping[int, int], number: int, steps: int) -> None:
        """Whether other models made the steps that came after its unused graphs."""
        for before in sorted(self.undecided):
            if before in steppers or before < steps:
                self.undecided.discard(before)
                self.decided = before
                self.beside += steppers.get(before, number) != number

    def choose_line(self) -> None:
        """Of the lines of one function that call it the one with the most unused graphs, then the first."""
        here = self.place.file, self.place.function
        lines = [site for site in self.askers if (site.file, site.function) == here and site in self.sites]
        if lines:
            self.place = min(lines, key=lambda site: (-self.sites[site][1], site.line or 0))
            self.asked = self.askers[self.place]

    def join_parts(self, models: Mapping[tuple[int, bool], EvaluatedModel], held: Collection[int]) -> int:
        """Stands for the whole model from now on, if it is a part of a frozen one of which a method is called.

        Args:
            models: All evaluated models, by identity and mode. The other parts are not reported any more.
            held: The parameters that optimizers hold, as `held_parameters` has them.

        Returns:
            Unused graphs of the part that has most; 0 where it is no part.
        """
        module = self.ref()
        alive = {number: inner for (number, _), one in models.items() if (inner := one.ref()) is not None}
        wholes = frozen_wholes(alive.values(), held)
        whole = wholes[id(module)] if module is not None else None
        if whole is module or whole is None:
            return 0
        parts = [one for (number, _), one in models.items() if wholes.get(number) is whole]
        for part in parts:
            part.told = 2
        self.name, self.bytes = type(whole).__name__, max((part.bytes or 0 for part in parts), default=0) or None
        return max(part.unused for part in parts)

    def beside_it(self, models: Iterable[EvaluatedModel]) -> list[EvaluatedModel]:
        """Of the models that are evaluated, the others that the same function asks: one no_grad there is for all."""
        if self.judge is None:
            return []
        asked = (model for model in models if model is not self and model.judge == self.judge)
        return [model for model in asked if not (model.used or model.told or model.beside)]  # no teacher of training's


MIN_UNUSED = 3
"""Graphs of one line that died unused."""
LARGER = 1.5
"""An unused graph is reported from so many times the used ones on: a smaller one adds nothing to the peak."""
Way: TypeAlias = "tuple[tuple[str | None, int | None], ...]"
"""Files and lines of the user's functions, innermost first."""
MOST_LINES = 16
"""Lines of a run that are followed."""


@final
@dataclass(slots=True)
class CallLine:
    """The calls of one line."""

    forwards: int = 0
    used: int = 0
    unused: int = 0
    bytes: int | None = None
    told: bool = False
    since: int = 0
    """Optimizer steps before the first of the unused."""
    first_batch: int = 0
    """The batch of the first of the unused."""
    beside: int = 0
    """Of the unused, those that were alive at a later forward of their model."""
    alive: int = 1
    """The most of its graphs that were alive at the same time, without a backward so far."""


@final
class EvalLines:
    """Tells the graphs of evaluation apart by the line that called the model, and by the model's class.

    Where an evaluation adapts to a task, attacks or explains, backwards run through some of its graphs; each task may
    have a copy of the model. A line whose graphs no backward used is reported if they are larger than the used ones.
    So it is in training, where one call alone may be for its values: of a whole roll-out, of a pool to choose from. It
    is reported as well where its graphs live beside later ones, whatever their size. A function may ask for values and
    for what is trained: the way to it tells these calls apart. A model may be trained as a part of another one, and
    asked by itself for values: all it does as a part counts as one line.

    Args:
        training: Whether to follow forwards in training, else those of evaluation.
    """

    def __init__(self, *, training: bool = False) -> None:
        self._training = training
        self._lines: dict[tuple[Place | Way, str], CallLine] = {}

    def answered(self, module: nn.Module, mark: ForwardGraph, output: object, ledger: GraphTracker) -> None:
        """Notes the way to a call in training, and which graphs are alive beside its own; sizes a line's second one."""
        alive = 1
        if self._training and mark.training and mark.outer is None:
            mark.way = tuple(level.place for level in stack_of(module))
            for other in list(ledger.live.values()):
                if other.module == mark.module and other is not mark and not other.used:
                    other.beside = True
                    alive += other.way == mark.way
        line = self._line(mark, type(module).__name__, new=True)
        if line is not None:
            line.forwards += 1
            line.alive = max(line.alive, alive)
            if line.forwards == 2:
                line.bytes = graph_bytes(module, output)
            elif mark.outer is not None and line.forwards & (line.forwards - 1) == 0:
                line.bytes = max(line.bytes or 0, graph_bytes(module, output) or 0)  # it may be of several sizes

    def died(
        self, mark: ForwardGraph, name: str, least: int = LEAST, *, few: bool = False
    ) -> tuple[Place, CallLine] | None:
        """Counts a graph that died; its line, once there is reason to report it.

        Args:
            mark: The graph's.
            name: The model's class.
            least: Bytes of all that are alive at the same time, from which on it is reported.
            few: Whether too few graphs of this model itself died unused: then the line's are of several models, which
                are evaluated where steps lie between, as after each fold; all at once they may be teachers.
        """
        line = self._line(mark, name, new=False)
        if line is None:
            return None
        if mark.used:
            line.used += 1
            return None
        line.unused += 1
        line.beside += mark.beside
        if line.unused == 1:
            line.since, line.first_batch = mark.steps, mark.batch
        if few and line.since == mark.steps:
            return None
        nbytes = line.bytes or 0
        if mark.outer is not None or line.told or line.used or line.unused < MIN_UNUSED or nbytes * line.alive < least:
            return None
        others = [other.bytes or 0 for (_, of), other in self._lines.items() if of == name and other.used]
        if self._training and not any(others):
            return None  # what its backwards need is not known yet
        if nbytes < LARGER * max(others, default=0) and line.beside < MIN_UNUSED:
            return None
        place = self._place(mark, name)
        if place is None:
            return None
        line.told = True
        return place, line

    def _line(self, mark: ForwardGraph, name: str, *, new: bool) -> CallLine | None:
        if mark.training is not self._training or mark.stage.evaluates is self._training or mark.fed:
            return None
        calls = self._calls(mark)
        if calls is None:
            return None
        key = calls, name
        if new and key not in self._lines and len(self._lines) < MOST_LINES:
            self._lines[key] = CallLine()
        return self._lines.get(key)

    def _calls(self, mark: ForwardGraph) -> Place | Way | None:
        """What tells the calls apart: their line, in training the whole way to it; all that a part does is one."""
        if mark.outer is not None:
            return NOWHERE if self._training else None
        if self._training:
            return tuple(place.where for place in mark.way) or None
        return mark.site if mark.site is not None and mark.site.file is not None else None

    def _place(self, mark: ForwardGraph, name: str) -> Place | None:
        """The line to tell: in training the innermost on the way, from where the model is asked, of no used call."""
        asked = mark.asked or mark.site
        if not self._training or asked is None:
            return asked if self._training else mark.site
        ways = (way for (way, of), one in self._lines.items() if one.used and of == name and not isinstance(way, Place))
        used = {line for way in ways for line in way}
        lines, where = [place.where for place in mark.way], asked.where
        if where not in used:
            return asked
        outer = mark.way[lines.index(where) + 1 :] if where in lines else ()
        place = next((place for place in outer if place.where not in used), None)
        return None if place is None else replace(place, holder=None)


# What a forward was given, and where it was asked for

NEAR = 64
"""Nodes up an input's graph among which the model, or the part of one, is looked for that answered last."""


def is_fed(args: tuple[object, ...], module: nn.Module) -> bool:
    """Whether an input has a graph that is not of this model's own last answer, as in a roll-out, or of its weights."""
    for tensor in tensors_in(args, 2):
        if tensor.grad_fn is not None:
            nodes = list(iter_nodes((tensor.grad_fn,), NEAR))
            sentinel = next((found for node in nodes if type(found := node.metadata.get(KEY)) is ForwardToken), None)
            if sentinel is None and _is_of_weights(nodes, module):
                continue
            if sentinel is None or sentinel.mark.module != id(module):
                return True
    return False


def _is_of_weights(nodes: list[Any], module: nn.Module) -> bool:
    """Whether a graph is nothing but arithmetic on the module's own weights: those of a learner that adapts."""
    leaves = [leaf for node in nodes if (leaf := getattr(node, "variable", None)) is not None]
    if not leaves or len(nodes) >= NEAR:
        return False
    own = {id(parameter) for parameter in parameters_of(module)}
    return all(id(leaf) in own for leaf in leaves)


def place_asked(*, strict: bool) -> Place:
    """Where the model is asked."""
    frame = asking_frame(sys._getframe(1), strict=strict)
    return NOWHERE if frame is None else place_of(frame)


def outermost_of(models: Mapping[tuple[int, bool], EvaluatedModel], asked: Place, parts: list[EvaluatedModel]) -> Place:
    """Where a model is asked, or the caller of a function there that training calls too: a no_grad is for its caller.

    What loops over batches is a whole epoch: what it asks is its own.
    """
    ways = (way for (_, training), other in models.items() if training and other.used for way in other.stacks)
    trained, where = {level.function for way in ways for level in way}, asked.where
    for way in (way for part in parts for way in part.stacks):
        for level in itertools.dropwhile(lambda level: level.place.where != where, way):
            if level.function not in trained:
                return asked if level.place.where == where else replace(level.place, holder=None)
            model = SourceModel.of(level.place.file)
            if not model.is_read or model.around(level.place.line or 0)[1]:
                return asked
    return asked
