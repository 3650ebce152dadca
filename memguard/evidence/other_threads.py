"""What guarded models do on other threads: evaluation graphs are counted, training is noted.

Where nothing happens on the guarded thread while another one trains, that is the one to guard: it is told to who asks.

The guarded thread tells of the graphs, the session of the training: it sees nothing of that.

Nothing here is shared with the ledger of the loop. What several threads touch are a dict of models, numbers in them and
a queue, each changed by one step that needs no lock; a count lost between two threads is no matter.
"""

from __future__ import annotations

import logging
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any, final

import torch
from torch import nn

from memguard.autograd.graph import GraphToken
from memguard.evidence.forward_outputs import graph_bytes
from memguard.evidence.guarded_hook import in_backward, in_transform
from memguard.evidence.naming.call_stacks import asking_frame
from memguard.forks import process
from memguard.heap.containers import tensors_in
from memguard.heap.frames import place_of
from memguard.records.facts import NOWHERE, Place
from memguard.torch_objects.hidden_hooks import without_number

KEY = "memguard.elsewhere"
logger = logging.getLogger("memguard")

MOST_FORWARDS, MOST_MODELS, MOST_OUTPUTS = 64, 64, 8
"""Of each model, of all, and of one answer that are followed."""
TRAINED = (
    "{} was trained on another thread than the one on which this guard was opened, and memguard does not see what "
    "happens there; open the guard (watch, wrap) on the thread that trains"
)
SIZED = 2
"""The forward whose graph is sized, and whose caller is noted."""


@final
@dataclass(slots=True, eq=False)
class EvaluatedElsewhere:
    """What is known of one model."""

    ref: weakref.ref[nn.Module]
    name: str
    forwards: int = 0
    unused: int = 0
    """Graphs that died."""
    used: bool = False
    """Whether a backward ran through any of them: then nothing is told of this model."""
    bytes: int | None = None
    place: Place = NOWHERE
    lives: dict[int, _Life] = field(default_factory=dict)


@final
class _Life(weakref.ref):  # type: ignore[type-arg]
    """The weak reference to a sentinel that knows its model."""

    __slots__ = ("dead", "model")
    model: EvaluatedElsewhere
    dead: deque[EvaluatedElsewhere]


@final
class _Used:
    """The prehook of a marked node."""

    __slots__ = ("_model",)

    def __init__(self, model: EvaluatedElsewhere) -> None:
        self._model = model

    def __call__(self, grads: object) -> None:
        self._model.used = True

    def __deepcopy__(self, memo: object) -> _Used:
        return self


def _never() -> bool:
    return False


@final
class _Trains:
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

    def __deepcopy__(self, memo: object) -> _Trains:
        return self


@final
class OtherThreads:
    """Hears the forwards of guarded models on threads other than the one that made it.

    Attributes:
        dead: The models of graphs that died since `unused` was asked; hardly ever any.
        trained: That a backward ran through a forward in training mode, in words; None while none did.
        trains_on: The thread on which it did, while the guarded one was idle.
        is_idle: Whether nothing has happened on the guarded thread, or it is over.
    """

    def __init__(self) -> None:
        self._thread, self._pid = get_ident(), process.pid
        self._inside = threading.local()
        self._models: dict[int, EvaluatedElsewhere] = {}
        self.dead: deque[EvaluatedElsewhere] = deque(maxlen=1024)
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

    def end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """It has answered; never raises, for torch calls this in a hook."""
        if not self.leave() or self._is_off or output is None or not torch.is_grad_enabled():
            return
        if process.pid != self._pid or in_transform() or in_backward():
            return
        try:
            if module.training:
                self.follow(module, output)
            else:
                self._mark(module, args, output)
        except Exception:
            self._is_off = True  # a rare sight less; the guarded thread is told of nothing

    def leave(self) -> bool:
        """Likewise; whether it is another thread's outermost call."""
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

    def unused(self, least: int) -> list[EvaluatedElsewhere]:
        """Models of which enough graphs died and none was ever used, where any died since the guarded thread asked."""
        dead: set[EvaluatedElsewhere] = set()
        while self.dead:
            model = self.dead.popleft()
            model.unused += 1
            dead.add(model)
        return [model for model in dead if model.unused >= least and not model.used]

    def _mark(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        number = id(module)
        model = self._models.get(number)
        if model is None or model.ref() is not module:
            if len(self._models) >= MOST_MODELS:
                return
            model = self._models[number] = EvaluatedElsewhere(weakref.ref(module), type(module).__name__)
        if model.used or model.forwards >= MOST_FORWARDS:
            return
        if any(tensor.grad_fn is not None for tensor in tensors_in(args, 2)):
            return  # what came before it has a graph: that is to be told
        model.forwards += 1
        first = True
        for tensor in list(tensors_in(output, 3))[:MOST_OUTPUTS]:
            node: Any = tensor.grad_fn
            if node is None or KEY in node.metadata:
                continue
            without_number(node.register_prehook, _Used(model))
            if first:
                first = False
                sentinel = node.metadata[KEY] = GraphToken()
                life = _Life(sentinel, _died)
                life.model, life.dead = model, self.dead
                model.lives[id(life)] = life
        if first:
            return
        if model.forwards == SIZED:  # a replica of DataParallel comes but once
            frame = asking_frame(sys._getframe(1), strict=False)
            model.place = place_of(frame) if frame is not None else NOWHERE
            model.bytes = graph_bytes(module, output)


def _died(life: _Life) -> None:
    """A marked answer is gone; may run on any thread, inside the garbage collector too: only atomic steps."""
    life.model.lives.pop(id(life), None)
    life.dead.append(life.model)
