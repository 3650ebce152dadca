"""Which marked autograd nodes a tensor's graph reaches: the test that tells a carrier of old graphs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Any, final

import torch

MAX_NODES = 4_000
"""Nodes looked at for one tensor."""
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
        self._clean: dict[int, Any] = {}  # nodes none of whose inputs reach a culprit; holding them keeps ids valid
        times = DEEPER if deep else 1
        self._most, self._left = times * MAX_NODES, times * MAX_NODES_IN_ALL
        self._left_to_pass = self._left
        self.gave_up = False

    def __call__(self, tensor: torch.Tensor) -> int | None:
        """Bytes of the tensor's storage if its graph reaches a culprit, else None."""
        node = tensor.grad_fn
        if node is None or id(node) in self._clean or not self._reaches(node):
            return None
        return _storage_bytes(tensor)

    def _reaches(self, start: Any) -> bool:
        seen = {id(start): start}
        queue = deque([start])
        while queue and len(seen) < self._most and self._left > 0:
            node = queue.popleft()
            self._left -= 1
            mark = node.metadata.get(self._key)
            if mark is not None and self._is_culprit(mark):
                return True
            for following, _ in node.next_functions:
                if following is not None and id(following) not in seen and id(following) not in self._clean:
                    seen[id(following)] = following
                    queue.append(following)
        if queue:
            self.gave_up = True
        else:
            self._clean.update(seen)
        return False

    def passes(self, tensor: torch.Tensor, others: Collection[torch.Tensor]) -> bool:
        """Whether the tensor's graph goes through the graph of one of the others: then it may only lie downstream."""
        start: Any = tensor.grad_fn
        nodes = [other.grad_fn for other in others]  # held, so that their ids stay theirs
        wanted = {id(node) for node in nodes if node is not None} - {id(start)}
        if start is None or not wanted:
            return False
        seen = {id(start): start}
        queue: deque[Any] = deque([start])
        while queue and len(seen) < self._most and self._left_to_pass > 0:
            self._left_to_pass -= 1
            for following, _ in queue.popleft().next_functions:
                if following is None or id(following) in seen:
                    continue
                if id(following) in wanted:
                    return True
                seen[id(following)] = following
                queue.append(following)
        return False


def _storage_bytes(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage().nbytes()
    except (RuntimeError, NotImplementedError):  # no storage: functorch, sparse, meta wrappers
        return 0
