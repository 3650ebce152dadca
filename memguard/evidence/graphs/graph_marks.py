"""Marks the autograd graph of every forward, at its stem and at the output, and counts steps made by hand.

The stem is the first leaf module of a model whose output requires grad: every graph is downstream of it.
"""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, final

import torch
from torch import nn

from memguard.autograd.graph import iter_nodes
from memguard.evidence.graph_tracker import ForwardGraph
from memguard.evidence.guarded_hook import Hook
from memguard.evidence.interface import Probe
from memguard.heap.containers import tensors_in
from memguard.heap.parameters import ParameterAt, trainable
from memguard.records.stats import Stage
from memguard.torch_objects.hidden_hooks import HiddenHook, without_number
from memguard.torch_objects.module_parts import gradient_of, named_parts_of

MAX_NODES, MAX_ENDS = 256, 8
"""Nodes of a bare loss's graph that are visited, and marked, to find its upstream end or a parameter."""


REACHED = 3
"""Backwards that arrived at a model's stem, before outputs are not asked any more."""


@final
class MarksProbe(Probe):
    """Keeps the ledger (`ProbeContext.ledger`); stands first among the probes, so that the others find it up to date.

    A graph is marked at its upstream end (the stem), for what an intermediate activation holds, and at the model's
    output, where a backward enters it.
    """

    def _prepare(self) -> None:
        self._open: list[ForwardGraph] = []
        self._reached: dict[int, int] = {}
        """Training forwards of each model whose backward arrived at the stem; enough of them, and it alone is asked."""

    def on_batch_end(self) -> None:
        """Takes what died since; forwards that failed without an end are forgotten."""
        if self._open:
            self._open.clear()
        ledger, reached = self.watch.ledger, self._reached
        ledger.settle()
        for mark in ledger.died:
            if mark.stemmed and mark.uses and mark.training and (times := reached.get(mark.module, 0)) < REACHED:
                reached[mark.module] = times + 1

    def on_stage_end(self, stage: Stage) -> None:
        """Takes what died since."""
        self.watch.ledger.settle()

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Opens the mark of this forward."""
        watch, opened = self.watch, self._open
        mark = ForwardGraph(
            module=id(module),
            batch=watch.batch,
            stage=watch.stage,
            training=module.training,
            steps=watch.optimizer_steps,
        )
        if opened:
            mark.outer = opened[-1]
        opened.append(mark)

    def on_stem_end(self, module: nn.Module, output: object) -> None:
        """Marks the graph at its upstream end."""
        if self._open and torch.is_grad_enabled():
            mark, ledger = self._open[-1], self.watch.ledger
            if type(output) is torch.Tensor and not mark.alive:
                if (node := output.grad_fn) is not None:
                    ledger.mark_node(node, mark)
            else:
                ledger.mark(tensors_in(output, 3), mark)
            mark.stemmed = mark.alive

    def on_forward_end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """Marks the graph at the model's output."""
        watch, mark, opened, key = self.watch, None, self._open, id(module)
        ledger = watch.ledger
        ledger.follows(watch.stage, watch.batch)
        while opened:
            mark = opened.pop()
            if mark.module == key:
                break
        ledger.current = None
        if mark is None or output is None or not torch.is_grad_enabled():
            return
        if mark.stemmed and not mark.alive:
            mark.stemmed = False  # that was a teacher's: the answer does not come from it
        hook = not (mark.stemmed and mark.training and self._reached.get(mark.module, 0) >= REACHED)
        hook = hook or mark.module in watch.doubted
        if type(output) is torch.Tensor and mark.alive:  # as `mark` does it
            node: Any = output.grad_fn
            if node is not None and ledger.mark_node(node, mark, hook=hook) and mark.output is None:
                mark.output = weakref.ref(output)
        else:
            ledger.mark(tensors_in(output), mark, output=True, hook=hook)
        if mark.alive:
            ledger.current = mark

    def on_backward_start(self, loss: torch.Tensor) -> None:
        """Marks the loss, where the integration shows it: it may be all that is kept."""
        watch = self.watch
        mark = ForwardGraph(module=0, batch=watch.batch, stage=watch.stage, training=True, steps=watch.optimizer_steps)
        watch.ledger.mark(iter((loss,)), mark)
        if not watch.models and loss.grad_fn is not None:  # no forward will mark its upstream end
            for node in _upstream_ends(loss.grad_fn):
                watch.ledger.mark_node(node, mark)

    def remove(self) -> None:
        """Forgets all graphs."""
        self.watch.ledger.forget()
        self._open.clear()


def _upstream_ends(node: Any) -> list[Any]:
    """Some nodes of a graph whose inputs are leaves: what an intermediate result holds goes back to one of them."""
    ends = []
    for current in iter_nodes((node,), MAX_NODES):
        inputs = [upstream for upstream, _ in current.next_functions if upstream is not None]
        if inputs and any(not upstream.next_functions for upstream in inputs):
            ends.append(current)
            if len(ends) == MAX_ENDS:
                break
    return ends


_log = logging.getLogger("memguard")

MAX_LEAVES = 4000
_DEEPEST = 16
"""Levels below which modules that hold others get no hook: each level's is a frame more, and frames are limited."""


class _Stem(NamedTuple):
    """The hook on the stem of a model."""

    root: weakref.ref[nn.Module]
    hook: Hook
    hidden: HiddenHook
    """The same as torch has it: put on in a forward that is heard."""


@final
class StemProbe(Probe):
    """Finds each model's stem in one forward with hooks that go at once; its own is there in forwards that are heard.

    An intermediate activation that a hook or a list keeps holds only what is upstream of it: the mark on the stem is
    there, the mark on the model's output is not. In a batch that nobody looks at the stem has no hook, which would take
    torch the long way through its call. A compiled model gets no stem: hooks inside it would break its graph.
    """

    def _prepare(self) -> None:
        self._found: dict[int, _Stem] = {}
        self._armed: dict[int, list[HiddenHook]] = {}
        self._searches: dict[int, int] = {}
        self._broken = False

    def on_model(self, model: nn.Module) -> None:
        """One more whose stem is to be found."""
        self._searches.pop(id(model), None)

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Hooks the stem, or arms the search for it in the first forward with gradients."""
        key = id(module)
        if self._armed:
            self._disarm(key)  # an interrupt ended the last search
        if (stem := self._found.get(key)) is not None:
            if self._broken:
                return
            if stem.hidden.put_on():
                return
            del self._found[key]  # the leaf was replaced by another
        if self._broken or not torch.is_grad_enabled() or self.watch.compiled or is_compiled(module):
            return
        searches = self._searches[key] = self._searches.get(key, 0) + 1
        if searches & (searches - 1):
            return  # hooks on every leaf are dear: a model without a graph yet is searched in its forwards 1, 2, 4, 8
        # Hooks run from the inside out: the first to answer is a leaf, or a module whose leaves are never called.
        leaves = [
            child
            for name, child in named_parts_of(module)
            if child is not module and (name.count(".") < _DEEPEST or not child._modules)
        ][:MAX_LEAVES]
        root = weakref.ref(module, functools.partial(_gone, self._found, key))
        self._armed[key] = armed = []
        for leaf in leaves:
            if isinstance(leaf, torch.jit.ScriptModule):
                continue
            armed.append(HiddenHook(leaf, Hook(functools.partial(self._hit, root), self._fails)))
            armed[-1].put_on()

    def on_forward_end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """Takes the hook off; ends a search that found nothing."""
        key = id(module)
        if (stem := self._found.get(key)) is not None:
            stem.hidden.rest()
        elif key in self._armed:
            self._disarm(key)

    def remove(self) -> None:
        """Takes all hooks away."""
        for key in list(self._armed):
            self._disarm(key)
        for stem in self._found.values():
            stem.hidden.remove()
            stem.hook.stop()
        self._found.clear()

    def _hit(self, root: weakref.ref[nn.Module], leaf: nn.Module, args: object, output: object) -> None:
        model = root()
        if model is None or not any(tensor.requires_grad for tensor in tensors_in(output, 3)):
            return
        self._disarm(id(model))
        hook = Hook(self.watch.stem_end, self._fails)
        hidden = HiddenHook(leaf, hook)
        hidden.put_on()
        self._found[id(model)] = _Stem(root, hook, hidden)
        self.watch.stem_end(leaf, args, output)

    def _fails(self, error: Exception) -> None:
        if not self._broken:
            self._broken = True
            _log.warning("memguard's probe %r failed and is off: %s: %s", self.name, type(error).__name__, error)

    def _disarm(self, key: int) -> None:
        for handle in self._armed.pop(key, ()):
            handle.remove()


def _gone(found: dict[int, _Stem], key: int, ref: object) -> None:
    found.pop(key, None)


def is_compiled(module: nn.Module) -> bool:
    """Whether a module is torch.compile's wrapper, or was compiled in place."""
    return "_orig_mod" in module._modules or getattr(module, "_compiled_call_impl", None) is not None


Place = ParameterAt | weakref.ref[torch.Tensor]
"""Where the tensor is: in a module, or anywhere."""


@final
class ManualStepsProbe(Probe):
    """Counts as an optimizer step what makes old graphs useless where no optimizer steps.

    One trainable tensor is followed. Its gradient was accumulated by a backward, and was then taken away, zeroed or
    replaced, or the tensor itself changed in place: the backward has served. It ends with the first optimizer step.
    """

    def _prepare(self) -> None:
        self._counted = 0
        self._place: Place | None = None
        self._followed = 0
        """The tensor's id."""
        self._handle: Any = None
        self._after: tuple[int, int, int] | None = None
        """Its version, its gradient's id and version after the last backward; None where that has served."""

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Looks at the tensor; follows one of the model's, if there is none yet."""
        if module.training and torch.is_grad_enabled():
            self._look(trainable(module))

    def on_backward_start(self, loss: torch.Tensor) -> None:
        """Where there is no module: the same, with a module that the loss depends on."""
        if not self.watch.models:
            nodes = iter_nodes((loss.grad_fn,), MAX_NODES)
            leaves = (leaf for node in nodes if isinstance(leaf := getattr(node, "variable", None), torch.Tensor))
            self._look(weakref.ref(leaf) for leaf in leaves)

    def remove(self) -> None:
        """Takes the hook off the tensor."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.remove()

    def _look(self, places: Iterable[Place]) -> None:
        if self.watch.optimizer_steps != self._counted:
            self.remove()
            self.unsubscribe("on_forward_start", "on_backward_start")
            return
        tensor = self._place() if self._place is not None else None
        if tensor is None or id(tensor) != self._followed:
            self._follow(places)
        elif self._after is not None and self._after != _state_of(tensor):
            self._after = None
            self._counted += 1
            self.watch.optimizer_steps += 1

    def _follow(self, places: Iterable[Place]) -> None:
        self.remove()
        place = next(iter(places), None)
        tensor = place() if place is not None else None
        register = getattr(tensor, "register_post_accumulate_grad_hook", None)
        # Within `functional_call` it is another tensor, which has a graph and takes no such hook.
        if register is not None and tensor is not None and tensor.is_leaf:
            self._place, self._followed, self._after = place, id(tensor), None
            self._handle = without_number(register, Hook(self._accumulated))

    def _accumulated(self, tensor: torch.Tensor) -> None:
        self._after = _state_of(tensor)


def _state_of(tensor: torch.Tensor) -> tuple[int, int, int] | None:
    """What changes when a gradient is taken away, zeroed or replaced, or the tensor itself is changed in place."""
    gradient = gradient_of(tensor)
    return (tensor._version, id(gradient), gradient._version) if gradient is not None else None
