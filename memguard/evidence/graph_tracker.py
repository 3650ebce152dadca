"""The graph tracker: which forwards' autograd graphs are alive, and whether a backward ran through them.

A `ForwardToken` in a graph node's public `metadata` lives exactly as long as the node. Its weak reference tells the
ledger when the graph dies; nothing here keeps a tensor or a graph alive.
"""

from __future__ import annotations

import bisect
import sys
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, final

import torch

from memguard.autograd.graph import GraphToken, NodePrehook
from memguard.heap.frames import call_site
from memguard.records.facts import Place
from memguard.records.stats import Stage
from memguard.torch_objects.hidden_hooks import without_number

KEY, OF_DERIVATIVE = "memguard.sentinel", "memguard.derivative"
"""Keys of the sentinels of forwards and of derivatives in a node's metadata."""
MOST_DERIVATIVES = 8
"""Of one forward that are followed."""
MAX_LIVE = 4096
"""Forwards in the ledger at once; a run that keeps more has been told long ago."""
NEVER = sys.maxsize
"""A batch that does not come."""
_TRAIN = Stage.TRAIN  # asked in each batch; an attribute of an Enum is looked up through its metaclass

_task: Callable[[], object] = getattr(torch._C, "_current_graph_task_id", object)  # checked in torch 2.13
_keep_graph = getattr(
    getattr(torch._C, "_autograd", None), "_get_current_graph_task_keep_graph", None
)  # checked in torch 2.13


@final
class ForwardToken(GraphToken):
    """What sits in the nodes of a forward's graph that are marked, and dies with the last of them."""

    __slots__ = ("mark",)
    mark: ForwardGraph


@final
class Derivative(NodePrehook):
    """The graph that one backward with ``create_graph`` built; and the prehook of its nodes that were marked.

    Marked is what made the gradients that ran into the marked nodes of a forward: each later backward through the
    derivative runs through one of these.
    """

    def __init__(self, place: Place, task: object) -> None:
        self.place, self.task = place, task
        self.used = False
        """Whether a later backward ran through it."""
        self._life: weakref.ref[GraphToken] | None = None

    @property
    def alive(self) -> bool:
        """Whether a marked node lives."""
        return self._life is not None and self._life() is not None

    def __call__(self, grads: Any) -> None:
        """A later backward runs through a marked node."""
        self.used = True

    def mark(self, gradients: Any) -> None:
        """Marks the nodes that made some gradients."""
        for gradient in (gradients,) if isinstance(gradients, torch.Tensor) else gradients or ():
            node: Any = gradient.grad_fn if gradient is not None else None
            if node is None or OF_DERIVATIVE in node.metadata:
                continue
            token = self._life() if self._life is not None else None
            if token is None:
                token = GraphToken()
                self._life = weakref.ref(token)
            node.metadata[OF_DERIVATIVE] = token
            without_number(node.register_prehook, self)


@final
class ForwardGraph(NodePrehook):
    """One forward: what the ledger knows of its graph; and the prehook of the nodes of it that were marked first.

    What most forwards never have stands in the class: one is made for each forward, between steps that leave the
    caches cold.
    """

    alive = False
    """Whether a marked node lives."""
    used = False
    """Whether a backward ran through it."""
    uses = 0
    """How often one ran through the nodes of it that were marked first."""
    spent: int | None = None
    """Optimizer steps so far when a backward was first seen to have run through it; kept by the graphs probe."""
    task: object = None
    """The last one that did, as torch numbers them."""
    before: object = None
    """The one before that."""
    stemmed = False
    """Whether that is at the upstream end of the graph, where every backward arrives."""
    kept: Place | None = None
    """Where the last backward through it was called, if that one kept the saved tensors."""
    collected = False
    """Whether the garbage collector freed it."""
    created: Place | None = None
    """Where the last backward through it was called, if that one built a graph of its own (``create_graph``)."""
    creators: tuple[Place, ...] = ()
    """All places where such a one was called."""
    derivatives: tuple[Derivative, ...] = ()
    """The graphs of the first few of these."""
    fed = False
    """Whether the model's input had a graph already, as far as somebody looked."""
    node: str | None = None
    site: Place | None = None
    """Where the model was called."""
    asked: Place | None = None
    """Where the method of the model was called that gave back its answer with the graph; else the same place."""
    line: Place | None = None
    """The line of the user's code that called the model, where older graphs were alive then."""
    way: tuple[Place, ...] = ()
    """The lines of the user's functions on the way to that call, innermost first, where it was followed."""
    beside = False
    """Whether it was alive, and no backward had run through it, at a later forward of the same model."""
    outer: ForwardGraph | None = None
    """The forward that this one is a part of."""
    output: weakref.ref[torch.Tensor] | None = None
    life: _Life | None = None
    """Of the sentinel that its nodes share, while one of them lives."""

    def __init__(self, *, module: int, batch: int, stage: Stage, training: bool, steps: int) -> None:
        self.module = module
        """Key of the root module (`ModuleEntry`)."""
        self.batch, self.stage, self.training = batch, stage, training
        self.steps = steps
        """Optimizer steps before it."""

    def __call__(self, grads: Any) -> None:
        """A backward, or autograd.grad, runs through the nodes that were marked first."""
        if (task := _task()) != self.task:
            self.uses += 1
            self.before, self.task = self.task, task
        self.used = True
        if _keep_graph is not None and _keep_graph():
            self._keep(grads)
        elif self.kept is not None:
            self.kept = None

    def further(self, grads: Any) -> None:
        """Likewise through another node."""
        self.used = True  # the same lines as above: a call less in each backward
        if _keep_graph is not None and _keep_graph():
            self._keep(grads)
        elif self.kept is not None:
            self.kept = None

    def _keep(self, grads: Any) -> None:
        try:
            # With create_graph the engine runs with gradients on: then the graph is kept to be used again.
            created = torch.is_grad_enabled()
            self.kept = None if created else call_site()
            if created:
                self.created = call_site()
                if self.created not in self.creators:
                    self.creators += (self.created,)
                self._follow(self.created, grads)
        except Exception:
            self.kept = None

    def _follow(self, place: Place, grads: Any) -> None:
        task = _task()
        if not self.derivatives or self.derivatives[-1].task != task:
            if len(self.derivatives) >= MOST_DERIVATIVES:
                return
            self.derivatives += (Derivative(place, task),)
        self.derivatives[-1].mark(grads)


@final
class _Life(weakref.ref):  # type: ignore[type-arg]
    """The weak reference to a sentinel that knows its mark and ledger."""

    __slots__ = ("ledger", "mark")
    ledger: GraphTracker
    mark: ForwardGraph


@final
class GraphTracker:
    """All marked forwards of a run.

    Attributes:
        live: Forwards of which a node is alive.
        oldest: The batch of the first of them, or an earlier one; at the end of a batch nothing but the first's.
        died: Forwards whose graph died between the last two calls of `settle`.
        is_ordinary: Whether all of them were of training, and a backward without a graph of its own ran through each.
        current: The forward that ended just now, if it built a graph.
        collecting: Whether the cyclic garbage collector runs right now (kept up to date by the cycles probe).
        is_collected: Whether the program collects garbage by calls, with the collector switched off (the same).
        collected: Forwards whose graph the collector freed, all together.
    """

    def __init__(self) -> None:
        self.live: dict[int, ForwardGraph] = {}
        self.oldest = NEVER
        self.died: list[ForwardGraph] = []
        self.is_ordinary = True
        self.current: ForwardGraph | None = None
        self.collecting = False
        self.is_collected = False
        self.collected = 0
        self._dead: deque[ForwardGraph] = deque(maxlen=1024)
        self._followed: dict[Stage, array[int]] = {}
        """Record numbers of the batches whose forwards were followed, by stage."""
        with torch.inference_mode(False):
            self._bearer: Any = torch.empty(0, device="cpu")
        """Bears the hooks of the next node; a tensor, for torch takes them from one."""

    def follows(self, stage: Stage, batch: int) -> None:
        """A forward of this batch is followed; another one of the same batch is no news."""
        followed = self._followed.get(stage)
        if followed is None:
            followed = self._followed[stage] = array("q")
        if not followed or followed[-1] != batch:
            followed.append(batch)

    def followed(self, stage: Stage, first: int, last: int) -> int:
        """Batches of a stage, from one record number to another, whose forwards were followed."""
        followed = self._followed.get(stage, ())
        return bisect.bisect_right(followed, last) - bisect.bisect_left(followed, first)

    def mark(
        self, tensors: Iterable[torch.Tensor], mark: ForwardGraph, *, output: bool = False, hook: bool = True
    ) -> None:
        """Puts a sentinel into the graph of each tensor that has one.

        Args:
            tensors: What the forward gave.
            mark: The forward.
            output: Whether these are the model's outputs; one is remembered weakly, to size the graph later.
            hook: Whether to hear of a backward there; it is the dearest part of a mark.
        """
        first = not mark.alive
        for tensor in tensors:
            node: Any = tensor.grad_fn
            if node is None or not self.mark_node(node, mark, hook=hook, first=first):
                continue
            if output and mark.output is None:
                mark.output = weakref.ref(tensor)

    def mark_node(self, node: Any, mark: ForwardGraph, *, hook: bool = True, first: bool = False) -> bool:
        """Puts a forward's sentinel into one node; whether it had none yet, and there is room."""
        metadata = node.metadata
        if KEY in metadata:
            return False
        life = mark.life
        sentinel = life() if life is not None else None
        if sentinel is None:
            live = self.live
            if len(live) >= MAX_LIVE:
                return False
            sentinel = ForwardToken()
            sentinel.mark = mark
            mark.life = life = _Life(sentinel, _died)
            life.ledger, life.mark = self, mark
            first = mark.alive = True
            live[id(mark)] = mark
            if mark.batch < self.oldest:
                self.oldest = mark.batch
            mark.node = node.name()
        metadata[KEY] = sentinel
        if hook:
            self._hear(node, mark if first else mark.further)
        return True

    def _hear(self, node: Any, hook: Callable[[Any], None]) -> None:
        """Has a backward through a node call a hook, as ``Tensor.register_hook`` of its output would.

        ``register_prehook`` makes a handle that nobody wants: a quarter of what a mark costs. What it takes from a
        tensor, that function of torch's, is the dictionary alone.
        """
        bearer = self._bearer
        try:
            if bearer is not None:
                bearer._backward_hooks = {0: hook}
                node._register_hook_dict(bearer)  # checked in torch 2.13
                return
        except (AttributeError, RuntimeError, TypeError):
            self._bearer = None
        without_number(node.register_prehook, hook)

    def settle(self) -> None:
        """Moves what died since the last call to `died`, and looks which is the oldest that lives."""
        if not self.live:
            self.oldest = NEVER
        elif self.oldest != NEVER:
            try:
                first = next(iter(self.live.values()), None)
                self.oldest = first.batch if first is not None else NEVER
            except RuntimeError:
                pass  # one died meanwhile on another thread: the older one will do
        dead = self._dead
        if dead or self.died:
            self.died, self.is_ordinary = (died := []), True
            while dead:
                died.append(mark := dead.popleft())
                if not (mark.used and mark.training) or mark.created is not None or mark.stage is not _TRAIN:
                    self.is_ordinary = False

    def forget(self) -> None:
        """Lets go of everything; sentinels still in graphs die unheard."""
        if self._bearer is not None:
            self._bearer._backward_hooks = None
        for mark in list(self.live.values()):
            mark.life = None
        self.live.clear()
        self.oldest = NEVER
        self._dead.clear()
        self.died = []
        self.current = None


def _died(life: _Life) -> None:
    """No marked node of a forward lives; may run on any thread, inside the collector too: only atomic steps."""
    ledger, mark = life.ledger, life.mark
    if mark.life is not life:
        return  # it was marked anew meanwhile
    mark.alive, mark.life = False, None
    if ledger.live.pop(id(mark), None) is not None:
        if ledger.collecting:
            mark.collected = True
            ledger.collected += 1
        ledger._dead.append(mark)
