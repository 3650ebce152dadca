"""Which marked autograd nodes a tensor's graph reaches: the test that tells a carrier of old graphs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, final

import torch

from memguard.autograd.graph import MAX_NODES, graph_of, iter_nodes
from memguard.torch_objects.storages import storage_key

MAX_NODES_IN_ALL = 30_000
DEEPER = 4
"""So many times more where nobody was found: a recurrent layer alone has a thousand nodes a batch."""


@final
class Reach:
    """Judges tensors by the marks in `grad_fn.metadata`. Keeps the nodes it saw alive: drop it after one naming.

    Args:
        key: The key of the mark in a node's `metadata`.
        is_culprit: Told a mark; whether it is one of those looked for.
        deep: Whether to look at more nodes.

    Attributes:
        gave_up: Whether some graph was too large to be looked at whole.
    """

    def __init__(self, key: object, is_culprit: Callable[[Any], bool], *, deep: bool = False) -> None:
        self._key = key
        self._is_culprit = is_culprit
        self._clean: set[Any] = set()  # nodes none of whose inputs reach a culprit
        times = DEEPER if deep else 1
        self._most = times * MAX_NODES
        self._left = self._left_to_pass = times * MAX_NODES_IN_ALL
        self.gave_up = False

    def __call__(self, tensor: torch.Tensor) -> int | None:
        """Bytes of the tensor's storage if its graph reaches a culprit, else None."""
        node = graph_of(tensor)
        if node is None or node in self._clean or not self._reaches(node):
            return None
        key = storage_key(tensor)
        return key[1] if key is not None else 0

    def _reaches(self, start: Any) -> bool:
        limit, visited = min(self._most, self._left), []
        for node in iter_nodes((start,), limit, known=self._clean):
            visited.append(node)
            mark = node.metadata.get(self._key)
            if mark is not None and self._is_culprit(mark):
                self._left -= len(visited)
                return True
        self._left -= len(visited)
        if len(visited) < limit:
            self._clean.update(visited)
        else:
            self.gave_up = True
        return False

    def passes(self, tensor: torch.Tensor, others: Collection[torch.Tensor]) -> bool:
        """Whether the tensor's graph goes through the graph of one of the others: then it may only lie downstream."""
        start = graph_of(tensor)
        wanted = set(map(graph_of, others)) - {None, start}
        if start is None or not wanted:
            return False
        for node in iter_nodes((start,), min(self._most, self._left_to_pass)):
            self._left_to_pass -= 1
            if node in wanted:
                return True
        return False
