"""Evaluation in training mode without ``no_grad``: forwards in a row whose graphs died unused."""

from __future__ import annotations

import sys
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias, final

import torch
from torch import nn

from memguard.autograd.graph import saved_storages
from memguard.evidence.graph_tracker import ForwardGraph
from memguard.evidence.guarded_hook import in_backward
from memguard.evidence.interface import Probe
from memguard.heap.containers import tensors_in
from memguard.heap.frames import call_site, user_frames
from memguard.records.facts import NOWHERE, Place, UnusedGraphs
from memguard.torch_objects.module_parts import buffers_of, parameters_of
from memguard.torch_objects.storages import storages_of

Way: TypeAlias = tuple[tuple[str, int], ...]
"""File and line of each of the user's functions, innermost first."""

IN_A_ROW = 4
"""Graphs that died unused one after another, without a backward or a step between them."""
MOST_WAYS, EVERY = 32, 16
"""Ways to forwards that a backward used; where nothing is suspected, one in so many forwards is asked for its own."""
LEAST_SHARE = 0.25
"""Their output over that of the graphs that are trained on: a policy asked for one action is no evaluation."""


@final
@dataclass(slots=True)
class _Pass:
    """One forward; nothing but its mark where there was no reason to ask."""

    mark: ForwardGraph
    bytes: int | None = None
    """Of its output."""
    carried: bool = False
    """Whether it was given a graph."""
    place: Place = NOWHERE
    """Where it was called."""
    way: Way = ()
    """The same, with its callers."""


@final
@dataclass(slots=True)
class _Model:
    """What is known of one model that is trained."""

    ref: weakref.ref[nn.Module]
    trained_bytes: int = 0
    """Of the largest output that a backward used."""
    recent: deque[_Pass] = field(default_factory=lambda: deque(maxlen=IN_A_ROW + 2))
    """The last forwards."""
    used: set[Way] = field(default_factory=set)
    """Ways on which forwards were called that a backward used."""
    forwards: int = 0
    told: bool = False


@final
class TrainingPassesProbe(Probe):
    """Looks for a row of forwards in training mode whose graphs died unused, of a model that is trained otherwise.

    In a training loop a backward or an optimizer step lies between any two of them. A roll-out asks for one small
    output at a time, or gives each forward the state of the last; views of one batch live until their backward. Where
    a backward used others that came by the same lines, batches are left out on purpose: easy ones, say.
    """

    def _prepare(self) -> None:
        self._models: dict[int, _Model] = {}

    def on_forward_end(self, module: nn.Module, args: tuple[object, ...], output: object) -> None:
        """Looks at the forwards before this one."""
        watch = self.watch
        mark = watch.ledger.current
        if mark is None or not mark.training or mark.outer is not None or watch.lightning or in_backward():
            return  # what backward computes again, it takes from the graph's tensors, not through the graph
        model = self._models.get(id(module))
        if model is None or model.ref() is not module:
            model = self._models[id(module)] = _Model(weakref.ref(module))
        if model.told:
            return
        recent = model.recent
        if len(recent) == 1 and model.trained_bytes and (one := recent[0]).bytes is None and one.mark.used:
            # As in most loops; the same happens below, with another object in the place of this one.
            if one.way and len(model.used) < MOST_WAYS:
                model.used.add(one.way)
            one.mark, one.way = mark, () if model.forwards % EVERY else _way()
            model.forwards += 1
            return
        if recent and (last := recent[-1]).mark.used and last.way and len(model.used) < MOST_WAYS:
            model.used.add(last.way)
        while recent and (first := recent[0]).mark.used:
            recent.popleft()
            if first.bytes is not None and first.bytes > model.trained_bytes:
                model.trained_bytes = first.bytes
        if recent or not model.trained_bytes:
            carried = any(tensor.grad_fn is not None for tensor in tensors_in(args, 2))
            recent.append(_Pass(mark, _bytes_of(output), carried, call_site(), _way()))
        else:
            recent.append(_Pass(mark, way=() if model.forwards % EVERY else _way()))
        model.forwards += 1
        if len(recent) > IN_A_ROW and model.trained_bytes:
            self._conclude(module, model, output)

    def _conclude(self, module: nn.Module, model: _Model, output: object) -> None:
        now = self.watch.optimizer_steps
        row = [one for one in model.recent if not one.mark.alive and not one.mark.used and one.mark.steps == now]
        if now == 0 or len(row) < IN_A_ROW or any(one.mark.used for one in model.recent):
            return
        if any(one.carried or (one.way and one.way in model.used) for one in row):
            return
        if min((one.bytes for one in row if one.bytes is not None), default=0) < LEAST_SHARE * model.trained_bytes:
            return
        model.told = True
        place = row[-1].place
        saved: dict[int, int] = {}
        # What a function keeps until it ends dies together: this forward may be training's again, of another size.
        for tensor in tensors_in(output) if place == call_site() else ():
            saved.update(saved_storages(tensor.grad_fn) if tensor.grad_fn is not None else {})
        for key in storages_of([*parameters_of(module), *buffers_of(module)]):
            saved.pop(key, None)
        self.report(
            UnusedGraphs(
                **self.watch.now,
                place=place,
                module=type(module).__name__,
                count=len(row),
                forwards=len(row) + 1,
                first_batch=row[0].mark.batch,
                bytes=sum(saved.values()) or None,
                training=True,
            )
        )


def _way() -> Way:
    return tuple((frame.f_code.co_filename, frame.f_lineno) for frame in user_frames(sys._getframe(1)))


def _bytes_of(output: object) -> int:
    return sum(
        tensor.numel() * tensor.element_size() for tensor in tensors_in(output) if torch.is_floating_point(tensor)
    )
