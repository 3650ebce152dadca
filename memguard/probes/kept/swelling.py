"""Single objects that grow: a tensor, array or text that is joined to what comes, or a graph that hangs on the last."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from memguard.autograd.graph import GraphToken, depth_of

MIN_BYTES = 16 * 1024
MIN_BYTES_PER_BATCH = 1024
PER_BATCH = 0.9
"""Nodes that a batch must add to the depth of a graph."""
MIN_NODES = 8
MAX_DEPTH = 256
"""To which one side of a graph is followed; a graph that was as deep on both sides says nothing."""
MAX_GRAPHS = 24
"""Graphs that are measured in one round."""
_KEY = "memguard.measured"


@final
@dataclass(frozen=True, slots=True)
class Measure:
    """What one tensor came to, at one time."""

    bytes: int
    nodes: int
    """Depths of its graph on both sides: that of ``total + x`` goes back to the first total, however wide ``x`` is."""
    batch: int
    count: int
    """Batches of its stage until then."""
    graph: weakref.ref[GraphToken] | None = None
    """Lives as long as the graph that was measured."""


@final
@dataclass(frozen=True, slots=True)
class Swelling:
    """How a tensor differs from what stood at its place a round before."""

    bytes: int
    """By which its storage is larger; 0 where it is its graph that is."""
    nodes: int
    batches: int
    """Of the stage, meanwhile."""
    since: int
    """The same with those of other stages: of a validation, of samples that are drawn after each epoch."""


@final
class Swellings:
    """Measures tensors, arrays and texts by their positions. Keeps numbers, never an object.

    Args:
        before: The measures of an earlier round.

    Attributes:
        measures: Those of this one.
    """

    def __init__(self, before: Mapping[int, Measure]) -> None:
        self.measures: dict[int, Measure] = {}
        self._before = before
        self._found: dict[int, Swelling] = {}
        self._graphs = 0

    def meet(self, tensor: Any, nbytes: int, number: int, batch: int, count: int) -> None:
        """One tensor at a position."""
        node, nodes, graph = tensor.grad_fn, 0, None
        if node is not None and self._graphs < MAX_GRAPHS:
            self._graphs += 1
            nodes = depth_of(node, MAX_DEPTH, first=True) + depth_of(node, MAX_DEPTH, first=False)
            graph = weakref.ref(node.metadata.setdefault(_KEY, GraphToken()))
        elif node is not None or nbytes < MIN_BYTES:
            return
        self.measures[number] = Measure(nbytes, nodes, batch, count, graph)
        then = self._before.get(number)
        if then is None or (then.nodes > 0) != (nodes > 0) or then.nodes >= 2 * MAX_DEPTH:
            return
        batches, since = max(count - then.count, 1), max(batch - then.batch, 1)
        if nodes:
            if then.graph is None or then.graph() is None:
                return  # the larger graph is another one, like that of a longer sequence's loss
            if nodes - then.nodes >= max(PER_BATCH * batches, MIN_NODES):
                self._found[id(tensor)] = Swelling(0, nodes - then.nodes, batches, since)
        elif nbytes - then.bytes >= MIN_BYTES_PER_BATCH * batches:
            self._found[id(tensor)] = Swelling(nbytes - then.bytes, 0, batches, since)

    def meet_block(self, value: object, nbytes: int, number: int, batch: int, count: int) -> None:
        """One array or text at a position."""
        if nbytes < MIN_BYTES:
            return
        self.measures[number] = Measure(nbytes, 0, batch, count)
        then = self._before.get(number)
        if then is None or then.nodes:
            return
        batches, since = max(count - then.count, 1), max(batch - then.batch, 1)
        if nbytes - then.bytes >= MIN_BYTES_PER_BATCH * batches:
            self._found[id(value)] = Swelling(nbytes - then.bytes, 0, batches, since)

    def take(self) -> dict[int, Swelling]:
        """What was found since the last call, by the object's id: to be used at once."""
        found, self._found = self._found, {}
        return found
