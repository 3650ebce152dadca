"""The peak up to the moment in which tensors go: ``self.last = out.detach()`` makes the new one before that."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any, final

import torch

from memguard.stats import MemoryStats

MAX_TENSORS = 16


@final
class UntilGone:
    """Reads the device's peak as each of some tensors goes, for as long as half of their bytes are there.

    Holds the tensors weakly; a view of one that is looked for counts as itself.

    Args:
        tensors: That are alive now.
        read: One look at the device, without consequences.

    Attributes:
        peak: The last reading, in bytes; None before the first, and where nobody counts.
    """

    def __init__(self, tensors: Iterable[torch.Tensor], read: Callable[[], MemoryStats]) -> None:
        self.peak: int | None = None
        self._read, self._thread = read, get_ident()
        different = {id(tensor): tensor for tensor in tensors if not issubclass(type(tensor), torch.nn.Parameter)}
        some = list(different.values())[:MAX_TENSORS]
        self._all = self._alive = sum(tensor.nbytes for tensor in some)
        self._refs: dict[Any, int] = {weakref.ref(tensor, self._gone): tensor.nbytes for tensor in some}

    def stop(self) -> None:
        """What goes from now on is not looked at."""
        self._refs.clear()

    def _gone(self, ref: weakref.ref[torch.Tensor]) -> None:
        try:
            nbytes = self._refs.pop(ref, None)
            if nbytes is not None and 2 * self._alive >= self._all and get_ident() == self._thread:
                self.peak = self._read().allocated_peak_bytes
            self._alive -= nbytes or 0
        except Exception:
            self._refs.clear()  # it runs in the middle of the user's step, and there is nobody to tell
