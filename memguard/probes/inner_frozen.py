"""A teacher inside the model: a part that no optimizer holds builds graphs nobody uses."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, final

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from memguard.facts import NOWHERE, Fact, Place, UnusedGraphs
from memguard.module_parts import children_of, parameters_of, parts_of
from memguard.probes.answering import asking_frame
from memguard.probes.call_stacks import name_in
from memguard.probes.frames import user_frames
from memguard.probes.hook import Hook
from memguard.probes.interface import Probe, Watch, is_optimized
from memguard.probes.ledger import tensors_in
from memguard.probes.returned import graph_bytes
from memguard.probes.sites import place_of
from memguard.probes.sizes import MOST_OWNED

KEY = "memguard.inner"
AFTER_STEPS = 4
"""Optimizer steps after which the parts are looked through, once: who is trained is known by then."""
MAX_PARTS = 8
CALLS = 8
"""Of one part, in which it is hooked."""
MIN_UNUSED = 4


@final
class _Graph:
    """Sits in the graph's node beside the ledger's sentinel (the part may be the model's stem), and dies with it."""

    __slots__ = ("__weakref__",)

    def __deepcopy__(self, memo: object) -> None:
        return None


@final
class _Used:
    """The prehook of that node."""

    def __init__(self) -> None:
        self.used = False

    def __call__(self, grads: object) -> None:
        self.used = True

    def __deepcopy__(self, memo: object) -> _Used:
        return self


@final
class _Part:
    """One part of a model, of which no optimizer holds a weight."""

    def __init__(self, module: nn.Module) -> None:
        self.ref = weakref.ref(module)
        self.name = type(module).__name__
        self.hook: Hook | None = None
        self.handle: RemovableHandle | None = None
        self.calls = 0
        self.graphs: list[tuple[weakref.ref[_Graph], _Used]] = []
        self.place: Place | None = None
        self.bytes: int | None = None

    def leave(self) -> None:
        """Takes the hook away; a copy of it says nothing any more."""
        if self.handle is not None and self.hook is not None:
            self.handle.remove()
            self.hook.stop()


@final
class InnerFrozenProbe(Probe):
    """Hooks, for a few calls, the outermost trainable parts that no optimizer holds, though one holds other parts.

    Their gradients never changed a weight; if besides no backward enters their graphs, these were built for nothing.
    """

    name: ClassVar[str] = "inner frozen"

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._parts: list[_Part] = []
        self._searched = False

    def on_batch_end(self) -> None:
        """Looks for such parts once; later concludes, and takes the hooks away."""
        watch = self.watch
        if self._searched:
            self._conclude()
        elif watch.optimizer_steps >= AFTER_STEPS and watch.optimizers:
            self._searched = True
            if not watch.compiled:
                self._search()
            if not self._parts:
                self.stop_hearing("on_batch_end")

    def remove(self) -> None:
        """Takes all hooks away."""
        for part in self._parts:
            part.leave()
            for model in self.watch.models:  # a part that was replaced may have handed its hook on
                if part.hook is not None:
                    part.hook.take_off(model)
        self._parts.clear()

    def _search(self) -> None:
        held = {
            id(parameter)
            for optimizer in self.watch.optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        }
        for model in self.watch.models:
            if sum(len(part._parameters) for part in parts_of(model)) > MOST_OWNED:
                continue
            if not any(id(parameter) in held for parameter in parameters_of(model)):
                continue
            for module in _unheld(model, held):
                if isinstance(module, torch.jit.ScriptModule):
                    continue
                if len(self._parts) == MAX_PARTS:
                    return
                part = _Part(module)
                part.hook = Hook(functools.partial(self._called, part))
                part.handle = module.register_forward_hook(part.hook)
                self._parts.append(part)

    def _called(self, part: _Part, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        if not torch.is_grad_enabled() or part.calls >= CALLS or any(t.requires_grad for t in tensors_in(args)):
            return
        part.calls += 1
        node: Any = next((tensor.grad_fn for tensor in tensors_in(output) if tensor.grad_fn is not None), None)
        if node is None:
            return
        graph, used = _Graph(), _Used()
        node.metadata[KEY] = graph
        node.register_prehook(used)
        part.graphs.append((weakref.ref(graph), used))
        if part.place is None:
            name = next((name_in(frame, module) for frame in user_frames()), None)
            frame = asking_frame(strict=True)
            part.place = replace(NOWHERE if frame is None else place_of(frame), holder=name)
        if part.bytes is None:
            part.bytes = graph_bytes(module, output)

    def _conclude(self) -> None:
        for part in list(self._parts):
            unused = [graph for graph, use in part.graphs if graph() is None and not use.used]
            if part.calls < CALLS and len(unused) < MIN_UNUSED:
                continue
            self._parts.remove(part)
            part.leave()
            if len(unused) < MIN_UNUSED or any(use.used for _, use in part.graphs) or part.place is None:
                continue
            module = part.ref()
            if module is None or is_optimized(self.watch, [module]):
                continue  # by one that has made no step yet
            self.report(
                UnusedGraphs(
                    batch=self.watch.batch,
                    stage=self.watch.stage,
                    place=part.place,
                    module=part.name,
                    count=len(unused),
                    forwards=part.calls,
                    bytes=part.bytes,
                    frozen=True,
                )
            )
        if not self._parts:
            self.stop_hearing("on_batch_end")


def _unheld(module: nn.Module, held: set[int]) -> Iterator[nn.Module]:
    """The outermost submodules that are trainable and have no parameter in a set."""
    for child in children_of(module):
        parameters = list(parameters_of(child))
        if not any(parameter.requires_grad for parameter in parameters):
            continue
        if any(id(parameter) in held for parameter in parameters):
            yield from _unheld(child, held)
        else:
            yield child
