"""How places grow from one look at the heap to the next: containers by their elements, single objects by their bytes.

Keeps numbers and weak references by the path of a place, never an object.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, final

import torch
from torch import nn

from memguard.autograd.graph import GraphToken, depth_of
from memguard.heap.containers import elements_of, latest_of, length_of, unwrapped
from memguard.heap.host_sizes import size_of
from memguard.heap.walk import Link

PER_BATCH = 0.9
"""Elements of a container, or nodes of a graph's depth, that a batch must add."""
MIN_GROWTH = 8
"""The same in all."""
STEADY = 0.6
"""What grows by less than that with every batch must go on as it did before: a cache fills ever more slowly."""
SAME_RATE = 0.02
"""By how much two of them may differ where the elements were replaced as well."""
MANY, MIN_PLAIN_BYTES = 64, 16 * 1024
"""Numbers and short texts a batch, and what they take on the host: a row for each sample, not for each batch."""
MIN_BYTES, MIN_BYTES_PER_BATCH = 16 * 1024, 1024
"""Of a single object, and by which it must grow."""
MAX_DEPTH = 256
"""To which one side of a graph is followed; a graph that was as deep on both sides says nothing."""
MAX_GRAPHS = 24
"""Graphs that are measured in one round."""
_KEY = "memguard.measured"
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_DANGLING: tuple[type, ...] = tuple(getattr(torch, name) for name in ("Stream", "Event") if hasattr(torch, name))
"""Of a stream or event that is gone a weak reference is not told (torch.cuda's in 2.11; not so in 2.15): when it is
dropped itself, the process crashes."""


@final
@dataclass(slots=True)
class _Container:
    """One container, as it was at the last round that met it."""

    length: int
    """In the round before, where it grew by a few since: those count as not seen yet."""
    batch: int
    round: int
    rate: float = 0.0
    """Elements a batch by which it grew until then."""
    newest: weakref.ref[Any] | None = None
    """What was added last. If that is gone at the next round, it is another container under the same name, like the
    list of this episode's losses, or was emptied and filled again."""


@final
@dataclass(frozen=True, slots=True)
class _Measure:
    """What one tensor, array or text came to, at one time."""

    bytes: int
    nodes: int
    """Depths of its graph on both sides: that of ``total + x`` goes back to the first total, however wide ``x`` is."""
    batch: int
    count: int
    round: int
    graph: weakref.ref[GraphToken] | None = None
    """Lives as long as the graph that was measured."""


@final
@dataclass(frozen=True, slots=True)
class ObjectGrowth:
    """How a tensor, array or text differs from what stood at its place a round before."""

    bytes: int
    """By which its storage is larger; 0 where it is its graph that is."""
    nodes: int
    batches: int
    """Of the stage, meanwhile."""
    since: int
    """The same with those of other stages: of a validation, of samples that are drawn after each epoch."""


@final
class HeapHistory:
    """What rounds over the heap saw at each place of one stage.

    Attributes:
        batch: Batches of all stages so far; set by whoever makes a round.
        count: Those of the stage.
        rounds: Rounds that were begun.
    """

    def __init__(self) -> None:
        self.batch = self.count = self.rounds = 0
        self._graphs = 0
        self._containers: dict[int, _Container] = {}
        self._measures: dict[int, _Measure] = {}
        self._grown: dict[int, tuple[int, int]] = {}
        self._swollen: dict[int, ObjectGrowth] = {}

    def begin_round(self) -> None:
        """What is met from now on is compared with what rounds before met."""
        self.rounds += 1
        self._graphs = 0
        self._grown, self._swollen = {}, {}
        self._measures = {path: one for path, one in self._measures.items() if one.round == self.rounds - 1}

    def skip(self, batches: int) -> None:
        """Some batches of other stages have passed, which are not to count; single objects are measured anew."""
        for container in self._containers.values():
            container.batch += batches
        self._measures = {}

    def take(self) -> tuple[dict[int, tuple[int, int]], dict[int, ObjectGrowth]]:
        """What was found to grow since the last call, by ids, to be used at once: containers, and single objects.

        Of containers how long they were, and in which batch.
        """
        grown, self._grown = self._grown, {}
        swollen, self._swollen = self._swollen, {}
        return grown, swollen

    def meet_container(self, link: Link) -> int:
        """One container at its place; by how many elements it grew since the round before."""
        value = unwrapped(link.value)
        length, newest = length_of(value), telling_element(value)
        then = self._containers.get(link.path)
        if not length or (then is not None and then.round == self.rounds):
            return 0
        now = self._containers[link.path] = _Container(length, self.batch, self.rounds, newest=_reference(newest))
        if then is None:
            return 0
        now.newest = now.newest or then.newest
        longer = length - then.length
        now.rate = longer / max(self.batch - then.batch, 1) if longer else then.rate
        is_other = then.newest is not None and then.newest() is None
        # A metric's forward copies all that it has; an episode's list does not grow by the same again and again.
        if is_other and not (longer >= MIN_GROWTH and self._is_as_before(now.rate, then.rate)):
            return 0
        if 0 < longer < MIN_GROWTH:
            now.length, now.batch = then.length, then.batch
        goes_on = longer >= MIN_GROWTH and (now.rate >= PER_BATCH or now.rate >= STEADY * then.rate > 0)
        if goes_on and (not is_plain(newest) or (now.rate >= MANY and now.rate * size_of(newest) >= MIN_PLAIN_BYTES)):
            self._grown[id(link.value)] = then.length, then.batch
        return max(longer, 0)

    @staticmethod
    def _is_as_before(rate: float, before: float) -> bool:
        return rate >= PER_BATCH and math.isclose(rate, before, rel_tol=SAME_RATE)

    def meet_tensor(self, link: Link, nbytes: int) -> None:
        """One tensor at its place, and the bytes of its storage.

        Of a part of a storage only what it shows counts: another row is no growth, whatever batch it is of.
        """
        nbytes = min(nbytes, link.value.numel() * link.value.element_size())
        node, nodes, graph = link.value.grad_fn, 0, None
        if node is not None:
            if self._graphs >= MAX_GRAPHS:
                return
            self._graphs += 1
            nodes = depth_of(node, MAX_DEPTH, first=True) + depth_of(node, MAX_DEPTH, first=False)
            graph = weakref.ref(node.metadata.setdefault(_KEY, GraphToken()))
        self.measure(link, nbytes, nodes, graph)

    def measure(self, link: Link, nbytes: int, nodes: int = 0, graph: weakref.ref[GraphToken] | None = None) -> None:
        """One object at its place, a tensor or an array or text, and what it came to."""
        if graph is None and nbytes < MIN_BYTES:
            return
        then = self._measures.get(link.path)
        if then is not None and then.round == self.rounds:
            return
        self._measures[link.path] = _Measure(nbytes, nodes, self.batch, self.count, self.rounds, graph)
        if then is None or (then.nodes > 0) != (nodes > 0) or then.nodes >= 2 * MAX_DEPTH:
            return
        batches, since = max(self.count - then.count, 1), max(self.batch - then.batch, 1)
        if not nodes and nbytes - then.bytes >= MIN_BYTES_PER_BATCH * batches:
            self._swollen[id(link.value)] = ObjectGrowth(nbytes - then.bytes, 0, batches, since)
        # A larger graph that is another one, like that of a longer sequence's loss, is no growth.
        is_same = then.graph is not None and then.graph() is not None
        if nodes and is_same and nodes - then.nodes >= max(PER_BATCH * batches, MIN_GROWTH):
            self._swollen[id(link.value)] = ObjectGrowth(0, nodes - then.nodes, batches, since)


def telling_element(container: Any) -> Any:
    """What was added last, or a little before where that is plain: a loss between the numbers of a log."""
    latest = latest_of(container)
    return next((element for element in latest if not is_plain(element)), latest[0] if latest else None)


def is_plain(value: Any, depth: int = 2) -> bool:
    """Whether a new element is a number, a text or a few of them: the log that every loop keeps."""
    kind = type(value)
    if issubclass(kind, _PLAIN):
        return not issubclass(kind, (str, bytes)) or len(value) < 4096
    if depth and (kind is tuple or kind is list or kind is dict) and len(value) <= 32:
        return all(is_plain(part, depth - 1) for part in elements_of(value))
    return False


def _reference(value: Any, depth: int = 3) -> weakref.ref[Any] | None:
    """A weak reference to an element, or to a part of one that is a tuple, list or dictionary.

    None to parameters: `torch.utils.swap_tensors` refuses tensors to which there is one. None to streams and events.
    """
    kind = type(value)
    if issubclass(kind, (tuple, list, dict)):
        parts: Iterator[Any] = islice(iter(elements_of(value)), 8) if depth else iter(())
        return next((found for part in parts if (found := _reference(part, depth - 1)) is not None), None)
    if issubclass(kind, (*_PLAIN, *_DANGLING, nn.Parameter, type)):
        return None
    try:
        return weakref.ref(value)
    except TypeError:  # its class has no room for one
        return None
