"""Graphs that die unused beside training: evaluation without `no_grad` in training mode, derivatives with a graph."""

from __future__ import annotations

import sys
import weakref
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TypeAlias, final

import torch
from torch import nn

from memguard.autograd.graph import held_bytes, leaves_of
from memguard.evidence.graph_tracker import Derivative, ForwardGraph
from memguard.evidence.guarded_hook import in_backward
from memguard.evidence.interface import Probe
from memguard.evidence.sizes import graph_bytes
from memguard.heap.containers import tensors_in
from memguard.heap.frames import call_site, user_frames
from memguard.records.facts import NOWHERE, Place, UnusedGraphs
from memguard.source.sites import calls_backward
from memguard.source.stores import assigned_at
from memguard.thresholds import least_of_remark
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
        self.report(
            UnusedGraphs(
                **self.watch.now,
                place=place,
                module=type(module).__name__,
                count=len(row),
                first_batch=row[0].mark.batch,
                # What a function keeps until it ends dies together: this forward may be training's, of another size.
                bytes=graph_bytes(module, output) if place == call_site() else None,
                training=True,
            )
        )


def _way() -> Way:
    return tuple((frame.f_code.co_filename, frame.f_lineno) for frame in user_frames(sys._getframe(1)))


def _bytes_of(output: object) -> int:
    return sum(
        tensor.numel() * tensor.element_size() for tensor in tensors_in(output) if torch.is_floating_point(tensor)
    )


MIN_UNUSED = 3
"""Derivatives of one line in evaluation that died without a backward."""
MIN_IN_TRAINING, MOST_OPEN = 8, 256
"""The same in training, with none that was used; and those alive that are followed."""
MOST_SIZED = 8
"""Graphs of a model that are sized in training: the last of some inner steps has all of them."""
LEAST_BYTES = 1024**2
"""What one of them held; a graph whose tensors the derivative freed holds little."""


@final
@dataclass(slots=True)
class _Line:
    """What is known of a line that takes derivatives, in one mode of the model."""

    unused: int = 0
    first_batch: int | None = None
    """The first one of these."""


@final
class DerivativesProbe(Probe):
    """Looks for lines whose derivatives all die without a backward.

    Forces and residuals in an evaluation, inside of the model or outside; in training first-order inner steps, or a
    penalty that is only logged. Once a derivative is used, its line is no longer judged in that mode of the model.
    """

    def _prepare(self) -> None:
        self._open: list[tuple[ForwardGraph, Derivative]] = []
        """Derivatives that may still be used."""
        self._lines: dict[tuple[Place, bool], _Line | None] = {}
        """By line, and whether the model trains; None once a derivative was used, or the line was reported."""
        self._sizes: dict[tuple[int, bool], list[int]] = {}
        """Bytes of the next graphs of a model, by its id and whether it trains; only of models whose size is wanted."""

    def on_forward_end(self, module: nn.Module, args: tuple[object, ...], output: object) -> None:
        """Sizes what the next answers of a model hold, where that is asked for."""
        mark = self.watch.ledger.current
        if mark is None or mark.outer is not None:
            return
        sizes = self._sizes.get((id(module), mark.training))
        if sizes is not None and len(sizes) < (MOST_SIZED if mark.training else 1):
            sizes.append(graph_bytes(module, output) or 0)

    def on_backward_start(self, loss: torch.Tensor) -> None:
        """Where there are no modules: sizes a few graphs from the loss on, where they are asked for."""
        sizes = self._sizes.get((0, True))
        if sizes is not None and len(sizes) < MOST_SIZED:
            sizes.append(sum(held_bytes(loss, storages_of(leaves_of((loss.grad_fn,)))).values()))

    def on_batch_end(self) -> None:
        """Counts what became of the derivatives that were taken of forwards that died."""
        if self.watch.ledger.is_ordinary and not self._open:
            return  # then what died had no derivative with a graph
        for mark in self.watch.ledger.died:
            if mark.derivatives and mark.outer is None:
                self._open += [(mark, derivative) for derivative in mark.derivatives]
        waiting, self._open = self._open[-MOST_OPEN:], []
        for mark, derivative in waiting:
            key = derivative.place, mark.training
            line = self._lines.setdefault(key, _Line())
            if line is None:
                continue
            if derivative.used:
                self._lines[key] = None
            elif derivative.alive:
                self._open.append((mark, derivative))
            else:
                line.unused += 1
                line.first_batch = mark.batch if line.first_batch is None else line.first_batch
                sizes = self._sizes.setdefault((mark.module, mark.training), [])
                enough = (MIN_IN_TRAINING, MOST_SIZED) if mark.training else (MIN_UNUSED, 1)
                if line.unused >= enough[0] and len(sizes) >= enough[1]:
                    self._lines[key] = None
                    self._tell(mark, derivative.place, line, max(sizes))

    def _tell(self, mark: ForwardGraph, place: Place, line: _Line, nbytes: int) -> None:
        watch, peak = self.watch, self.watch.peak_bytes
        module = next((root for root in watch.models if id(root) == mark.module), None)
        least = max(LEAST_BYTES, (least_of_remark(peak) or 0) if mark.training else 0)
        # After a backward with create_graph the gradients keep the graph: MG104 reports that.
        if nbytes < least or calls_backward(place) or (module is None and mark.module):
            return
        name, source = assigned_at(place.file or "", place.line or 0) or (None, None)
        self.report(
            UnusedGraphs(
                **watch.now,
                place=replace(place, holder=name, source=source),
                module=type(module).__name__ if module is not None else "the loss",
                count=line.unused,
                first_batch=line.first_batch,
                bytes=nbytes,
                derivative=True,
                training=mark.training,
                peak_bytes=peak,
            )
        )
