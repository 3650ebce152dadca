"""The graph ledger: which forwards' autograd graphs are alive, and whether a backward ran through them.

A `Sentinel` in a graph node's public `metadata` lives exactly as long as the node. Its weak reference tells the ledger
when the graph dies; nothing here keeps a tensor or a graph alive.
"""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, final

import torch

from memguard.facts import Place
from memguard.probes.objects.sites import call_site
from memguard.stats import Stage

KEY = "memguard.sentinel"
"""Key of the sentinel in a node's metadata."""
MAX_LIVE = 4096
"""Forwards in the ledger at once; a run that keeps more has been told long ago."""
NEVER = sys.maxsize
"""A batch that does not come."""

_task: Callable[[], object] = getattr(torch._C, "_current_graph_task_id", object)  # checked in torch 2.13
_keep_graph = getattr(
    getattr(torch._C, "_autograd", None), "_get_current_graph_task_keep_graph", None
)  # checked in torch 2.13


@final
class Sentinel:
    """What sits in a graph's node and dies with it."""

    __slots__ = ("__weakref__", "mark")

    def __init__(self, mark: Mark) -> None:
        self.mark = mark

    def __deepcopy__(self, memo: object) -> None:
        return None

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return (type(None), ())


@final
class Mark:
    """One forward: what the ledger knows of its graph."""

    __slots__ = (
        "__weakref__",
        "alive",
        "answered",
        "asked",
        "batch",
        "before",
        "collected",
        "created",
        "creators",
        "fed",
        "kept",
        "line",
        "module",
        "node",
        "outer",
        "output",
        "site",
        "spent",
        "stage",
        "stemmed",
        "steps",
        "task",
        "training",
        "used",
        "used_late",
        "uses",
    )

    def __init__(self, *, module: int, batch: int, stage: Stage, training: bool, steps: int) -> None:
        self.module = module
        """Key of the root module (`ModuleEntry`)."""
        self.batch, self.stage, self.training = batch, stage, training
        self.steps = steps
        """Optimizer steps before it."""
        self.alive = 0
        """Marked nodes that live."""
        self.used = False
        """Whether a backward ran through it."""
        self.answered = self.used_late = False
        """Whether the forward is over, and whether a backward ran through it since."""
        self.uses = 0
        """How often one ran through the nodes of it that were marked first."""
        self.spent: int | None = None
        """Optimizer steps so far when a backward was first seen to have run through it; kept by the graphs probe."""
        self.task: object = None
        """The last one that did, as torch numbers them."""
        self.before: object = None
        """The one before that."""
        self.stemmed = False
        """Whether that is at the upstream end of the graph, where every backward arrives."""
        self.kept: Place | None = None
        """Where the last backward through it was called, if that one kept the saved tensors."""
        self.collected = False
        """Whether the garbage collector freed it."""
        self.created: Place | None = None
        """Where the last backward through it was called, if that one built a graph of its own (``create_graph``)."""
        self.creators: tuple[Place, ...] = ()
        """All places where such a one was called."""
        self.fed = False
        """Whether the model's input had a graph already, as far as somebody looked."""
        self.node: str | None = None
        self.site: Place | None = None
        """Where the model was called."""
        self.asked: Place | None = None
        """Where the method of the model was called that gave back its answer with the graph; else the same place."""
        self.line: tuple[str, int] | None = None
        """File and line of the user's code that called the model, where older graphs were alive then."""
        self.outer: Mark | None = None
        """The forward that this one is a part of."""
        self.output: weakref.ref[torch.Tensor] | None = None


@final
class _Life(weakref.ref):  # type: ignore[type-arg]
    """The weak reference to a sentinel that knows its mark and ledger."""

    __slots__ = ("ledger", "mark")
    ledger: Ledger
    mark: Mark


@final
class Ledger:
    """All marked forwards of a run.

    Attributes:
        live: Forwards of which a node is alive.
        oldest: The batch of the first of them, or an earlier one; at the end of a batch nothing but the first's.
        died: Forwards whose graph died between the last two calls of `settle`.
        current: The forward that ended just now, if it built a graph.
        collecting: Whether the cyclic garbage collector runs right now (kept up to date by the cycles probe).
        collected: Forwards whose graph the collector freed, all together.
    """

    def __init__(self) -> None:
        self.live: dict[int, Mark] = {}
        self.oldest = NEVER
        self.died: list[Mark] = []
        self.current: Mark | None = None
        self.collecting = False
        self.collected = 0
        self._dead: deque[Mark] = deque(maxlen=1024)
        self._lives: dict[int, _Life] = {}

    def mark(self, tensors: Iterable[torch.Tensor], mark: Mark, *, output: bool = False, hook: bool = True) -> None:
        """Puts a sentinel into the graph of each tensor that has one.

        Args:
            tensors: What the forward gave.
            mark: The forward.
            output: Whether these are the model's outputs; one is remembered weakly, to size the graph later.
            hook: Whether to hear of a backward there; it is the dearest part of a mark.
        """
        if len(self.live) >= MAX_LIVE:
            return
        first = mark.alive == 0
        for tensor in tensors:
            node: Any = tensor.grad_fn
            if node is None or not self.mark_node(node, mark, hook=hook, first=first):
                continue
            if output and mark.output is None:
                mark.output = weakref.ref(tensor)

    def mark_node(self, node: Any, mark: Mark, *, hook: bool = True, first: bool = False) -> bool:
        """Puts a sentinel into one node; whether it had none yet."""
        metadata = node.metadata
        if KEY in metadata:
            return False
        sentinel = metadata[KEY] = Sentinel(mark)
        life = _Life(sentinel, _died)
        life.ledger, life.mark = self, mark
        self._lives[id(life)] = life
        if mark.alive == 0:
            first = True
            self.live[id(mark)] = mark
            if mark.batch < self.oldest:
                self.oldest = mark.batch
            mark.node = node.name()
        mark.alive += 1
        if hook:
            node.register_prehook(_Used(mark, first))
        return True

    def settle(self) -> None:
        """Moves what died since the last call to `died`, and looks which is the oldest that lives."""
        if self.oldest != NEVER:
            try:
                first = next(iter(self.live.values()), None)
                self.oldest = first.batch if first is not None else NEVER
            except RuntimeError:
                pass  # one died meanwhile on another thread: the older one will do
        dead = self._dead
        if not dead and not self.died:
            return
        died = []
        while dead:
            died.append(dead.popleft())
        self.died = died

    def forget(self) -> None:
        """Lets go of everything; sentinels still in graphs die unheard."""
        self._lives.clear()
        self.live.clear()
        self.oldest = NEVER
        self._dead.clear()
        self.died = []
        self.current = None


def _died(life: _Life) -> None:
    """A marked node is gone; may run on any thread, inside the garbage collector too: only atomic steps."""
    ledger, mark = life.ledger, life.mark
    ledger._lives.pop(id(life), None)
    mark.alive -= 1
    if mark.alive <= 0 and ledger.live.pop(id(mark), None) is not None:
        if ledger.collecting:
            mark.collected = True
            ledger.collected += 1
        ledger._dead.append(mark)


@final
class _Used:
    """The prehook of a marked node: a backward, or autograd.grad, runs through it."""

    __slots__ = ("_first", "_mark")

    def __init__(self, mark: Mark, first: bool) -> None:
        self._mark, self._first = mark, first

    def __call__(self, grads: Any) -> None:
        mark = self._mark
        mark.used = True
        mark.used_late = mark.answered
        if self._first and (task := _task()) != mark.task:
            mark.uses += 1
            mark.before, mark.task = mark.task, task
        if _keep_graph is not None:
            try:
                # With create_graph the engine runs with gradients on: then the graph is kept to be used again.
                kept, created = _keep_graph(), torch.is_grad_enabled()
                mark.kept = call_site() if kept and not created else None
                if kept and created:
                    mark.created = call_site()
                    if mark.created not in mark.creators:
                        mark.creators += (mark.created,)
            except Exception:
                mark.kept = None

    def __deepcopy__(self, memo: object) -> _Used:
        return self
