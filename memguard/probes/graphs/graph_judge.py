"""What tensors that carry old graphs hold, found while they are recognised."""

from __future__ import annotations

from collections import deque
from typing import final

import torch

from memguard.probes.graphs.changed import needs_changed
from memguard.probes.objects.sizes import saved_storages, storages_of
from memguard.probes.reach import Reach


@final
class GraphJudge:
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
        self._sized: deque[int] = deque(maxlen=64)
        self._spoilt = dates

    def __call__(self, tensor: torch.Tensor) -> int | None:
        """Bytes that a tensor holds if it carries such a graph, else None; of the first 64 with all that they saved."""
        if self._reach(tensor) is None:
            return None
        held = storages_of([tensor])
        self._own.update(held)
        if len(self._sized) < 64 and tensor.grad_fn is not None:
            self._sized.append(1)
            held.update(saved_storages(tensor.grad_fn))
            self._spoilt = self._spoilt and needs_changed(tensor.grad_fn, self._owned)
        held = {key: size for key, size in held.items() if key not in self._owned}
        self._held.update(held)
        return sum(held.values())

    def total(self) -> int:
        """Bytes held by all of them together."""
        return sum(self._held.values())

    @property
    def saves(self) -> bool:
        """Whether most of it is still saved for a backward, so that none has run through most of it."""
        saved = sum(size for key, size in self._held.items() if key not in self._own)
        return 2 * saved > self.total()

    @property
    def spoilt(self) -> bool:
        """Whether they were, for each of the first 64 tensors: no backward can run through any of them."""
        return self._spoilt and bool(self._sized)
