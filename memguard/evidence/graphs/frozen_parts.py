"""Frozen parts inside a model: no optimizer holds them, yet they build graphs, for nothing or for gradients unused."""

from __future__ import annotations

import functools
import itertools
import sys
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from inspect import getattr_static
from types import FrameType
from typing import Any, final

import torch
from torch import nn

from memguard.autograd.graph import GraphToken, NodePrehook, iter_nodes
from memguard.evidence.graphs.evaluated_models import NEAR
from memguard.evidence.graphs.unused_gradients import Untaken, untaken_weights
from memguard.evidence.guarded_hook import Hook
from memguard.evidence.interface import Probe
from memguard.evidence.naming.call_stacks import asking_frame, name_in
from memguard.evidence.naming.names import user_files
from memguard.evidence.sizes import graph_bytes
from memguard.heap.attributes import attributes_of
from memguard.heap.children import children
from memguard.heap.containers import tensors_in
from memguard.heap.frames import place_of, read_locals, user_frames
from memguard.heap.parameters import frozen_wholes, held_parameters, is_optimized, is_unheld
from memguard.heap.roots import submodules_of
from memguard.records.facts import NOWHERE, Place, UnusedGraphs
from memguard.records.stats import Stage
from memguard.source.reads import reads_gradients
from memguard.torch_objects.hidden_hooks import HiddenHook, without_number
from memguard.torch_objects.module_parts import children_of, gradients_of, parameters_of, parts_of
from memguard.torch_objects.storages import MOST_OWNED, storages_of

KEY = "memguard.inner"
AFTER_STEPS = 4
"""Optimizer steps after which the parts are looked through: who is trained is known by then."""
MAX_SEARCHES = 4
"""Trainings, one after another, of which each brings a model of its own."""
MAX_PARTS = 8
CALLS = 8
"""Of one part, in which it is hooked."""
MIN_UNUSED = 4
MIN_USED = 2
"""Graphs of a model that no optimizer holds, all of them used, after which it is looked into."""
UNHEARD = 2
"""Batches of training in which a part was not called, after which what stands inside it is hooked."""
MAX_BELOW = 32
"""Modules that are hooked in the place of a part."""


@final
class _Used(NodePrehook):
    """The prehook of the node of an answer, in which a token sits beside the ledger's (the part may be the stem)."""

    def __init__(self) -> None:
        self.used = False

    def __call__(self, grads: object) -> None:
        self.used = True


@final
class _Part:
    """One part of a model, of which no optimizer holds a weight."""

    def __init__(self, module: nn.Module, model: int) -> None:
        self.ref = weakref.ref(module)
        self.model = model
        """Identity of the model that it belongs to."""
        self.name = type(module).__name__
        self.hooks: list[tuple[Hook, HiddenHook]] = []
        self.hooked: list[weakref.ref[nn.Module]] = []
        self.heard = False
        """Whether something of it was called that could begin a graph."""
        self.waited = 0
        self.calls = 0
        self.graphs: list[tuple[weakref.ref[GraphToken], _Used]] = []
        self.chained = False
        """Whether it was called with what leads to its own answer, as a layer is that is called again and again."""
        self.untaken: list[Untaken] = []
        """Its weights that had gradients at the first call."""
        self.place: Place | None = None
        self.bytes: int | None = None
        self.sized = -1
        """The batch in which its graph is sized."""

    def listen(self, modules: Sequence[nn.Module], called: Callable[..., None]) -> None:
        """Hooks what is called of it, the part itself to begin with."""
        self.leave()
        self.waited = 0
        self.hooked = [weakref.ref(module) for module in modules]
        for module in modules:
            hook = Hook(functools.partial(called, self))
            hidden = HiddenHook(module, hook)
            hidden.put_on()
            self.hooks.append((hook, hidden))

    def inside(self) -> list[nn.Module]:
        """What stands one level below the modules that are hooked and never called."""
        alive = (module for ref in self.hooked if (module := ref()) is not None)
        below = (child for module in alive for child in callable_below(module))
        return [child for child in below if not isinstance(child, torch.jit.ScriptModule)][:MAX_BELOW]

    def leave(self) -> None:
        """Takes the hooks away."""
        for hook, hidden in self.hooks:
            hidden.remove()
            hook.stop()
        self.hooks = []


@final
class InnerFrozenProbe(Probe):
    """Hooks, for a few calls, models and their outermost trainable parts that no optimizer holds, while one steps.

    Their gradients never changed a weight; if besides no backward enters their graphs, these were built for nothing.
    Where a method of a part is called, and never the part, what the method calls is hooked in its place.
    """

    def _prepare(self) -> None:
        self._parts: list[_Part] = []
        self._searched = False
        self._searches = 0
        self._looked: list[weakref.ref[nn.Module]] = []
        """Models that were looked through, or watched when others were."""
        self._used: dict[int, list[int]] = {}
        """Graphs of each model that died unused, and those that a backward used."""
        self._sites: set[tuple[int, str | None, int | None]] = set()
        """Lines on which each model was called."""
        self._optimizers: list[weakref.ref[torch.optim.Optimizer]] = []
        """Those that were alive a batch before."""
        self._begun = 0
        """Optimizer steps before the training that is under way."""
        self._first = 0
        """Its first batch, where it is not the first training."""

    def on_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Looks anew where another training begins, of a model that was not there: it may have a teacher inside."""
        if self._searched and self._searches < MAX_SEARCHES and self._new_models():
            self._searched = False
            self._used.clear()
            self._begun, self._first = self.watch.optimizer_steps, self.watch.batch
            self.hear("on_batch_end")

    def on_batch_end(self) -> None:
        """Looks for such parts once in a training; later concludes, and takes the hooks away."""
        watch = self.watch
        if self._parts:
            self._conclude()
        if self._searched:
            return
        optimizers = [weakref.ref(optimizer) for optimizer in watch.optimizers]
        if self._optimizers and optimizers and all(ref() is None for ref in self._optimizers):
            self._used.clear()  # a training is over, and what was trained in it may be a teacher in the next
            self._begun = watch.optimizer_steps
        self._optimizers = optimizers or self._optimizers
        for mark in watch.ledger.died:
            if mark.batch >= self._first:
                self._used.setdefault(mark.module, [0, 0])[mark.used] += 1
            if mark.site is not None:
                self._sites.add((mark.module, mark.site.file, mark.site.line))
        if watch.optimizer_steps - self._begun >= AFTER_STEPS and optimizers:
            self._searched = True
            self._searches += 1
            if not watch.compiled:
                self._search()
            self._looked = [weakref.ref(model) for model in watch.models]
            if not self._parts:
                self.unsubscribe("on_batch_end")

    def remove(self) -> None:
        """Takes all hooks away."""
        for part in self._parts:
            part.leave()
        self._parts.clear()

    def _new_models(self) -> list[nn.Module]:
        known = {id(model) for ref in self._looked if (model := ref()) is not None}
        return [model for model in self.watch.models if id(model) not in known]

    def _search(self) -> None:
        held = held_parameters(self.watch.optimizers)
        for mark in list(self.watch.ledger.live.values()):  # a list may keep the losses, and with them all graphs
            if mark.used and mark.batch >= self._first:
                self._used.setdefault(mark.module, [0, 0])[1] += 1
        frozen: list[nn.Module] = []
        for model in self._new_models():
            if sum(len(part._parameters) for part in parts_of(model)) > MOST_OWNED:
                continue
            unused, used = self._used.get(id(model), (0, 0))
            if not is_unheld(model, held):
                self._hook_parts(model, held)
            elif used >= MIN_USED and not unused:  # not trained itself: a teacher, or a loss with one inside
                frozen.append(model)
        wholes = frozen_wholes(frozen, held) if frozen else {}
        for model in frozen:
            if all(part.ref() is not wholes[id(model)] for part in self._parts):
                self._hook(wholes[id(model)], model)

    def _hook_parts(self, model: nn.Module, held: Collection[int]) -> None:
        known = {id(module) for part in self._parts if (module := part.ref()) is not None}
        # Who is asked by itself again and again is judged as a whole. One that was in an earlier training, or once as
        # this began, and is a part now, may be a teacher.
        called = any(self._used.get(id(model), ()))
        roots = {id(one) for one in self.watch.models if not called or sum(self._used.get(id(one), ())) >= MIN_USED}
        for module in itertools.chain(_unheld(model, held), _hidden(model, held)):
            if id(module) not in roots | known:
                self._hook(module, model)

    def _hook(self, module: nn.Module, model: nn.Module) -> None:
        if not isinstance(module, torch.jit.ScriptModule) and len(self._parts) < MAX_PARTS:
            part = _Part(module, id(model))
            part.listen([module], self._called)
            self._parts.append(part)

    def _called(self, part: _Part, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        if not torch.is_grad_enabled() or part.calls >= CALLS:
            part.heard = True
            return
        whole, given = part.ref(), [tensor for tensor in tensors_in(args) if tensor.requires_grad]
        part.heard = part.heard or not given
        if given or whole is None:
            if part.graphs and whole is not None and _continues(part, given):
                part.chained = part.chained or module is whole
                if part.sized == self.watch.batch:
                    part.bytes = max(part.bytes or 0, graph_bytes(whole, output) or 0) or None
            return
        node: Any = next((tensor.grad_fn for tensor in tensors_in(output) if tensor.grad_fn is not None), None)
        if node is None:
            return
        part.calls += 1
        if part.calls == 1:
            part.untaken = list(untaken_weights(whole, set(), self.watch.optimizer_steps, cleared=True))
        graph, used = GraphToken(), _Used()
        node.metadata[KEY] = graph
        without_number(node.register_prehook, used)
        part.graphs.append((weakref.ref(graph), used))
        if part.place is None:
            outside = _outside(whole)
            frame = asking_frame(outside, strict=True) if outside is not None else None
            others = {site[1:] for site in self._sites if site[0] != id(whole)}
            while frame is not None and (frame.f_code.co_filename, frame.f_lineno) in others:  # a helper of them all
                outside = frame = next(user_frames(frame.f_back), None) if frame.f_back is not None else None
            name = name_in(outside, whole) if outside is not None else None
            part.place = replace(NOWHERE if frame is None else place_of(frame), holder=name)
        if part.bytes is None:
            part.bytes, part.sized = graph_bytes(whole, output), self.watch.batch

    def _conclude(self) -> None:
        # Where a part goes on with what an adapter before it answered, the model's backward needs its graph. One that
        # is asked for a target too, as the network in a perceptual loss is, needs none for that.
        fed = {part.model for part in self._parts if part.chained or not part.calls}
        for part in list(self._parts):
            if not part.heard:
                self._wait(part)
                continue
            unused = [graph for graph, use in part.graphs if graph() is None and not use.used]
            if part.calls < CALLS and len(unused) < MIN_UNUSED:
                continue
            self._parts.remove(part)
            part.leave()
            used, gradients = [use for _, use in part.graphs if use.used], []
            if used and not unused and part.model not in fed:
                files = {*user_files(), *(frame.f_code.co_filename for frame in user_frames(sys._getframe(1)))}
                steps, unread = self.watch.optimizer_steps, not (self._steps_on_copies() or reads_gradients(files))
                now = (one.gradient_now(steps, unread=unread) for one in part.untaken)
                gradients = [gradient for gradient in now if gradient is not None]
                if not self._has_most(part, gradients):
                    continue  # the model's are reported together
            told = len(used) if gradients else len(unused)
            if told < MIN_UNUSED or (used and not gradients) or part.place is None:
                continue
            module = part.ref()
            if module is None or is_optimized([module], self.watch.optimizers):
                continue  # by one that has made no step yet
            self.report(
                UnusedGraphs(
                    **self.watch.now,
                    place=part.place,
                    module=part.name,
                    count=told,
                    bytes=part.bytes,
                    gradients_bytes=sum(storages_of(gradients).values()) if gradients else None,
                    frozen=True,
                )
            )
        if not self._parts and self._searched:
            self.unsubscribe("on_batch_end")

    def _steps_on_copies(self) -> bool:
        """Whether an optimizer has weights of no model: they may be copies, which a library writes back unheard."""
        own = {id(parameter) for model in self.watch.models for parameter in parameters_of(model)}
        return not held_parameters(self.watch.optimizers) <= own

    def _has_most(self, part: _Part, gradients: list[torch.Tensor]) -> bool:
        """Whether these are most of the gradients that the part's model has and that no optimizer uses."""
        held = held_parameters(self.watch.optimizers)
        model = next((model for model in self.watch.models if id(model) == part.model), None)
        places = (one.place() for one in untaken_weights(model, held, 0)) if model is not None else ()
        total = storages_of(gradients_of(parameter for parameter in places if parameter is not None))
        return 2 * sum(storages_of(gradients).values()) >= sum(total.values())

    def _wait(self, part: _Part) -> None:
        """Of a part that was not called in a few batches of training: what stands inside may be."""
        if self.watch.stage is not Stage.TRAIN:
            return
        part.waited += 1
        module = part.ref()
        if part.waited >= UNHEARD and module is not None and id(module) == part.model:
            self._parts.remove(part)
            part.leave()
            self._hook_parts(module, held_parameters(self.watch.optimizers))
        elif part.waited >= UNHEARD:
            below = part.inside()
            part.listen(below, self._called)
            if not below:
                self._parts.remove(part)


def _outside(part: nn.Module) -> FrameType | None:
    """The user's innermost frame that is no method of a part or of what belongs to it."""
    own = {id(module) for module in submodules_of(part, set())}
    for frame in user_frames(sys._getframe(1)):
        code = frame.f_code
        if not code.co_argcount or code.co_varnames[0] != "self" or id(read_locals(frame).get("self")) not in own:
            return frame
    return None


def _continues(part: _Part, given: list[torch.Tensor]) -> bool:
    """Whether what a module was given comes from an answer of this part that has no graph before it."""
    graphs = [graph for ref, _ in part.graphs if (graph := ref()) is not None]
    nodes = (node for tensor in given if tensor.grad_fn is not None for node in iter_nodes((tensor.grad_fn,), NEAR))
    return any(node.metadata.get(KEY) in graphs for node in nodes)


MAX_HELD = 32
"""What one object holds: a container of more is one of something else."""
MAX_DEPTH = 3
"""Objects in objects: a partial of a method of an object that has a teacher."""
_OF_TORCH = frozenset(vars(nn.Module()))


def callable_below(module: nn.Module) -> Iterator[nn.Module]:
    """The modules one level below, those in containers that nobody calls (lists, dicts) among them."""
    for child in children_of(module):
        if getattr_static(type(child), "forward") is nn.Module.forward:
            yield from callable_below(child)
        else:
            yield child


def _unheld(module: nn.Module, held: Collection[int]) -> Iterator[nn.Module]:
    """The outermost trainable parts without a parameter that is held."""
    for child in children_of(module):
        if any(parameter.requires_grad for parameter in parameters_of(child)):
            yield from (child,) if is_unheld(child, held) else _unheld(child, held)


def _hidden(model: nn.Module, held: Collection[int]) -> Iterator[nn.Module]:
    """Those in a list, dictionary, partial, closure or object of the user's that a part has as an attribute."""
    known = {id(module) for module in submodules_of(model, set())}
    for part in submodules_of(model, set()):
        for name, value in attributes_of(part).items():
            if name in _OF_TORCH:
                continue
            for module in _modules_in(value, MAX_DEPTH):
                if id(module) in known:
                    continue
                known.add(id(module))
                if is_unheld(module, held) and any(p.requires_grad for p in parameters_of(module)):
                    yield module


def _modules_in(value: Any, depth: int) -> Iterator[nn.Module]:
    if issubclass(type(value), nn.Module):
        yield value
    elif depth and not issubclass(type(value), type):
        held = list(itertools.islice(children(value), MAX_HELD + 1))
        for _, _, one in held if len(held) <= MAX_HELD else ():
            yield from _modules_in(one, depth - 1)
