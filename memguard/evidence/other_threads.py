"""Training on another thread than the guarded one: nothing of that is recorded, and the run's notes say so.

Where nothing happens on the guarded thread while another one trains, the latter is to be guarded instead.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from threading import get_ident
from typing import final

import torch
from torch import nn

from memguard.autograd.graph import NodePrehook
from memguard.evidence.guarded_hook import in_backward, in_transform
from memguard.forks import process
from memguard.heap.containers import tensors_in
from memguard.torch_objects.hidden_hooks import without_number

logger = logging.getLogger("memguard")

MOST_FORWARDS, MOST_OUTPUTS = 64, 8
"""That are followed, and of one answer."""
TRAINED = (
    "{} was trained on another thread than the one on which this guard was opened, and memguard does not see what "
    "happens there; open the guard (watch, wrap) on the thread that trains"
)


def _never() -> bool:
    return False


@final
class _Trains(NodePrehook):
    """The prehook of a node that a model in training mode gave out."""

    def __init__(self, elsewhere: OtherThreads, name: str) -> None:
        self._elsewhere, self._name = elsewhere, name
        self._thread = get_ident()  # CUDA's backward runs on another one

    def __call__(self, grads: object) -> None:
        elsewhere = self._elsewhere
        if elsewhere.trained is not None or elsewhere.trains_on is not None:
            return
        if elsewhere.is_idle():
            elsewhere.trains_on = self._thread
            return
        elsewhere.trained = text = TRAINED.format(self._name)
        logger.warning("memguard: %s.", text)


@final
class OtherThreads:
    """Hears the forwards of guarded models on threads other than the one that made it.

    Attributes:
        trained: That a backward ran through a forward in training mode, in words; None while none did.
        trains_on: The thread on which it did, while the guarded one was idle.
        is_idle: Whether nothing has happened on the guarded thread, or it is over.
    """

    def __init__(self) -> None:
        self._thread, self._pid = get_ident(), process.pid
        self._inside = threading.local()
        self.trained: str | None = None
        self.trains_on: int | None = None
        self.is_idle: Callable[[], bool] = _never
        self._followed = 0
        self._is_off = False

    def moved(self) -> None:
        """The calling thread is the guarded one from now on."""
        self._thread, self.trains_on = get_ident(), None
        self._inside = threading.local()
        self._followed = 0

    def start(self) -> None:
        """A guarded model is called, on any thread."""
        if get_ident() != self._thread:
            self._inside.depth = getattr(self._inside, "depth", 0) + 1

    def end(self, module: nn.Module, output: object) -> None:
        """It has answered; never raises, for torch calls this in a hook."""
        if not self.leave() or not module.training or self._is_off or output is None or not torch.is_grad_enabled():
            return
        if process.pid != self._pid or in_transform() or in_backward():
            return
        try:
            self.follow(module, output)
        except Exception:
            self._is_off = True  # a rare note less

    def leave(self) -> bool:
        """A guarded model has answered; whether it is another thread's outermost call."""
        if get_ident() == self._thread:
            return False
        depth = self._inside.depth = max(getattr(self._inside, "depth", 0) - 1, 0)
        return not depth

    def follow(self, module: nn.Module, output: object) -> None:
        """A model in training mode has answered on another thread: notes a backward through that."""
        if self.trained is not None or self.trains_on is not None or self._followed >= MOST_FORWARDS or in_backward():
            return
        if "_is_replica" in object.__getattribute__(module, "__dict__"):  # DataParallel's: a part of its own forward
            return
        for tensor in list(tensors_in(output, 3))[:MOST_OUTPUTS]:
            if tensor.grad_fn is not None:
                self._followed += 1
                without_number(tensor.grad_fn.register_prehook, _Trains(self, type(module).__name__))
                return
