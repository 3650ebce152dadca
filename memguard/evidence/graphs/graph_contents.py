"""What a graph holds, in bytes, and whether weights that it needs have changed."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any, final

import torch
from torch import nn

from memguard.autograd.graph import graph_of, iter_nodes, leaf_storages, raw_saved, saved_tensors
from memguard.autograd.reach import Reach
from memguard.evidence.graph_tracker import KEY, ForwardGraph
from memguard.evidence.graphs.function_contexts import kept_by
from memguard.evidence.interface import Probe
from memguard.evidence.naming.holders import Holder
from memguard.records.stats import Stage
from memguard.torch_objects.storages import owned_storages, storage_key, storages_of

MOST_SIZED = 64
"""Graphs that are gone through, however large they are."""
MOST_NODES = 10_000
"""Nodes of graphs: further ones are gone through until there were so many, in a fifth of a second."""


def reach_of(marks: Iterable[ForwardGraph], *, deep: bool = False) -> Reach:
    """Recognises tensors whose graph goes through that of one of some forwards."""
    keys = {id(mark) for mark in marks}
    return Reach(KEY, lambda sentinel: id(sentinel.mark) in keys, deep=deep)


def who_holds(
    probe: Probe,
    marks: Iterable[ForwardGraph],
    *,
    stage: Stage,
    collector: bool | None = False,
    deep: bool = False,
    dates: bool = False,
) -> tuple[tuple[Holder, ...], GraphContents]:
    """Who holds the graphs of some forwards, and what these hold.

    Args:
        probe: Who asks; the weights of the models that it watches are not counted.
        marks: The forwards.
        stage: That of the forwards.
        collector: Whether the garbage collector is asked as well; None where nobody else knows.
        deep: Whether to look at more nodes.
        dates: Whether to look if the weights were changed that the graphs need.
    """
    reach = reach_of(marks, deep=deep)
    contents = GraphContents(reach, owned_storages(probe.watch.models), dates=dates)
    passes, rest = reach.passes, contents.count
    return probe.holders(contents, graph=True, passes=passes, stage=stage, collector=collector, rest=rest), contents


@final
class GraphContents:
    """Recognises tensors that carry old graphs, and adds up what they hold, each storage once.

    Args:
        reach: Recognises them.
        owned: The storages of the weights: key to bytes.
        dates: Whether to look if the weights were changed that the graphs need.
    """

    def __init__(self, reach: Reach, owned: dict[int, int], *, dates: bool = False) -> None:
        self._reach, self._owned = reach, owned
        self._held: dict[int, int] = {}
        self._own: set[int] = set()
        self._kept_anyway: set[int] = set()
        """What graphs saved and others hold as well: inputs in a list of batches, or in the tensor of a data set."""
        self._batches: set[int] = set()
        """Those of the forwards that were met: a sum leads to the newest too, which nobody calls old yet."""
        self._leaves: dict[int, int] = {}
        self._reached: Counter[int] = Counter()
        """By how many graphs each leaf is: what all of them go back to lives without them, like a weight."""
        self._sized, self._nodes, self._more = 0, MOST_NODES, 0
        self._spoilt = dates

    def __call__(self, tensor: torch.Tensor) -> int | None:
        """Bytes that a tensor holds if it carries such a graph, else None; of the first ones with all that they saved.

        A backward takes away what was saved, not the leaves: an input made to require a gradient, and that gradient.
        """
        if self._reach(tensor) is None:
            if graph_of(tensor) is None:
                self._kept_anyway.update(storages_of([tensor]))
            return None
        held = storages_of([tensor])
        self._own.update(held)
        leaves: dict[int, int] = {}
        if (start := graph_of(tensor)) is not None and (self._sized < MOST_SIZED or self._nodes > 0):
            for node in iter_nodes((start,)):
                self._nodes -= 1
                if (sentinel := node.metadata.get(KEY)) is not None:
                    self._batches.add(sentinel.mark.batch)
                held.update(storages_of(saved_tensors(node)))
                if issubclass(type(node), torch.autograd.function.BackwardCFunction):
                    held.update(storages_of(itertools.chain.from_iterable(kept_by(node).values())))
                leaves.update(leaf_storages(node))
            if self._spoilt and self._sized < MOST_SIZED:
                self._spoilt = needs_changed(start, self._owned)
            self._sized += 1
        held = {key: size for key, size in held.items() if key not in self._owned}
        leaves = {key: size for key, size in leaves.items() if key not in self._owned}
        self._held.update(held)
        self._leaves.update(leaves)
        self._reached.update(leaves.keys())
        return sum((leaves | held).values())

    def count(self, tensors: Iterable[torch.Tensor]) -> None:
        """Adds what others hold that nobody looked at so far; where they are many, the last are taken to be alike."""
        before, looked, rest = self._total(), 0, 0
        for tensor in tensors:
            if self._nodes > 0:
                looked += self(tensor) is not None
            elif graph_of(tensor) is not None and (self._reach.gave_up or self._reach(tensor) is not None):
                rest += 1
        self._more += (self._total() - before) * rest // max(looked, 1)

    def total(self) -> int:
        """Bytes held by all of them together."""
        return self._total() + self._more

    def of_batches(self, batches: int) -> int:
        """Bytes held of so many batches: their share, where more were met."""
        return self.total() * batches // max(batches, len(self._batches))

    def _total(self) -> int:
        shared = self._sized if self._sized > 1 else 0
        leaves = {key: size for key, size in self._leaves.items() if self._reached[key] != shared}
        saved = {key: size for key, size in self._held.items() if key not in self._kept_anyway or key in self._own}
        return sum((leaves | saved).values())

    @property
    def gave_up(self) -> bool:
        """Whether some graph was too large to walk to its end."""
        return self._reach.gave_up

    @property
    def saves(self) -> bool:
        """Whether most of it is still saved for a backward, so that none has run through most of it."""
        saved = sum(size for key, size in self._held.items() if key not in self._own | self._kept_anyway)
        return 2 * saved > self.total()

    @property
    def spoilt(self) -> bool:
        """Whether they were, for each of the first tensors: no backward can run through any of them."""
        return self._spoilt and self._sized > 0


_PLAIN = (torch.Tensor, nn.Parameter)
_SAYS = "modified by an inplace operation"  # checked in torch 2.13


def needs_changed(node: Any, owned: Collection[int]) -> bool:
    """Whether a graph saved one of some storages, and torch refuses to give it back as it was then.

    A backward would fail there. Nobody can wait for it, and what keeps such a graph wants the value alone. Graphs that
    need no weight's value, and older versions of torch, never show it.
    """
    for current in iter_nodes((node,)):
        for saved, data in raw_saved(current):
            key = storage_key(data) if type(data) in _PLAIN else None  # a subclass would run code of its own
            if key is not None and key[0] in owned and _is_refused(saved):
                return True
    return False


def _is_refused(saved: Any) -> bool:
    unpack = getattr(saved, "unpack", None)
    if unpack is None:
        return False
    try:
        unpack()
    except RuntimeError as error:
        return _SAYS in str(error)
    return False
