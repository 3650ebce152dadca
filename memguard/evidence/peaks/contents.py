"""What filled the peak: the saved activations by module, and all else that was alive, for a few batches of a run."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, final

import torch
from torch import nn

from memguard.autograd.graph import SHOWS_SAVED, iter_nodes, number_of, saved_tensors
from memguard.evidence.graphs.graph_marks import is_compiled
from memguard.evidence.guarded_hook import Hook
from memguard.evidence.interface import Probe
from memguard.evidence.owners import named_states
from memguard.evidence.peaks.module_calls import ModuleCalls, Moment, next_number
from memguard.heap.containers import tensors_in
from memguard.records.facts import NOWHERE, Fact, Place
from memguard.records.peak_contents import PeakContents, Row
from memguard.records.stats import BatchRecord, Stage
from memguard.torch_objects.hidden_hooks import without_number
from memguard.torch_objects.module_parts import gradient_of, named_buffers_of, named_parameters_of, parts_of
from memguard.torch_objects.storages import MOST_OWNED, storage_key

MOST_BATCHES = 64
"""Batches of a run whose contents are taken."""
HIGHER = 20
"""The next is taken where peak or input are larger by one part in so many."""
MOST_NODES = 50_000
_FIRST = 2
"""Steps after which the states of optimizers are there, and gradients as they will be."""
_MOST_HEARD = 64
"""Modules whose turn in the backward is noted."""
_LEAST = 100
"""What lay there before counts as kept where it is at least one part in so many of the peak: less may be rounding."""


class _Saved(NamedTuple):
    """A storage that a graph saved, first by this node."""

    number: int
    call: int
    row: Row


@final
class ContentsProbe(Probe):
    """Takes the contents of the peak in the first batches, and where peak or inputs became larger since."""

    def _prepare(self) -> None:
        self._taken = self._highest = self._worth = self._inputs = self._steps = 0
        self._calls: ModuleCalls | None = None
        self._model: int | None = None
        """The model whose forward is open."""
        self._begin_bytes: int | None = None
        self._saved: dict[int, _Saved] = {}
        self._owned: dict[int, Row] = {}
        """At the end of the forward, with the inputs."""
        self._late: dict[int, Row] = {}
        """When the optimizer stepped last, or else at the end of the batch."""
        self._arrivals: dict[str, int] = {}
        """Gradients to come, each with the number of the node after which it is there."""
        if not SHOWS_SAVED or next_number is None:
            self._cease()

    def _cease(self) -> None:
        events = ("on_forward_start", "on_forward_end", "on_loss", "on_optimizer_step_start", "on_batch_end")
        self.unsubscribe(*events, "on_records")

    def remove(self) -> None:
        """Takes the hooks off."""
        self._drop()

    def on_records(self, records: Iterable[BatchRecord]) -> None:
        """Notes how high training peaked; where that is higher than what was taken, losses are heard of again."""
        peaks = (record.allocated_peak_bytes or 0 for record in records if record.stage is Stage.TRAIN)
        self._highest = max(self._highest, max(peaks, default=0))
        if self._highest > self._worth and self._taken < MOST_BATCHES:
            self.hear("on_loss")

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Begins to take a batch, if one is due."""
        watch = self.watch
        if watch.stage is not Stage.TRAIN or self._calls is not None or not torch.is_grad_enabled():
            return
        inputs = list(tensors_in((args, dict(kwargs)), 4))
        numel = sum(tensor.numel() for tensor in inputs)
        first_step = self._steps < watch.optimizer_steps <= _FIRST
        larger = self._highest > self._worth or numel > self._inputs + self._inputs // HIGHER
        if self._taken >= MOST_BATCHES or not (larger or first_step):
            return
        if watch.compiled or any(is_compiled(part) for part in parts_of(module)):
            return self._cease()
        self._drop()
        now = watch.read()
        if now.allocated_bytes is None or now.allocated_peak_bytes is None:
            return self._cease()
        self._begin_bytes = now.allocated_bytes
        self._inputs, self._steps = max(self._inputs, numel), watch.optimizer_steps
        for tensor in inputs:
            self._own(self._owned, tensor, "inputs", "the batch", "input")
        self._calls = calls = ModuleCalls(watch.read, self._fails)
        self._model = id(module)
        calls.begin(module, watch.models)

    def on_forward_end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """Reads what the graph saved, and hooks its nodes for the backward."""
        if self._calls is None or id(module) != self._model:
            return
        self._model = None
        calls = self._calls
        calls.end()
        calls.moment("forward", calls.calls[0].module, next_number() if next_number is not None else 0)
        if sum(len(part._parameters) for model in self.watch.models for part in parts_of(model)) > MOST_OWNED:
            return self._drop()
        self._owned |= self._own_all()
        self._read(tensor.grad_fn for tensor in tensors_in(output, 3))

    def on_loss(self, loss: torch.Tensor) -> None:
        """A backward begins: what computing the loss saved is there now."""
        if self._calls is not None and self._model is None:
            self._calls.moment("loss", "", 2**63)
            self._read([loss.grad_fn])

    def on_optimizer_step_start(self, optimizer: torch.optim.Optimizer) -> None:
        """The backward is over."""
        if self._calls is not None:
            self._calls.moment("backward", "", -1)
            self._late = self._own_all()

    def on_batch_end(self) -> None:
        """Puts it all together."""
        calls, record = self._calls, self.watch.record
        if calls is not None and self._model is None and record is not None and record.allocated_peak_bytes:
            late = self._own_all()
            states = {key: row for key, row in late.items() if row.category == "optimizer"}
            self._late = {**self._late, **states} if self._late else late
            self.watch.line("contents", self._contents(calls, record, record.allocated_peak_bytes).to_json())
            self._taken += 1
            self._worth = max(record.allocated_peak_bytes, self._highest)
            self._worth += self._worth // HIGHER
            if self._taken > _FIRST:
                self.unsubscribe("on_loss")
        self._drop()

    def on_exception(self, error: BaseException) -> None:
        """Nobody knows what is over."""
        self._drop()

    def _drop(self) -> None:
        calls, self._calls, self._model = self._calls, None, None
        self._saved, self._owned, self._late, self._arrivals = {}, {}, {}, {}
        if calls is not None:
            calls.end()

    def _fails(self, error: Exception) -> None:
        self._drop()
        self._cease()

    # Who owns what

    def _own(self, found: dict[int, Row], tensor: torch.Tensor, category: str, group: str, what: str) -> None:
        key = storage_key(tensor)
        if key is not None and key[0] not in found and self._is_on_device(tensor):
            found[key[0]] = _row(category, group, NOWHERE, what, key[1], tensor)

    def _own_all(self) -> dict[int, Row]:
        """Parameters, buffers, gradients and optimizer states as they are now, by storage."""
        found: dict[int, Row] = {}
        groups: dict[int, str] = {}
        models, optimizers = self.watch.models, self.watch.optimizers
        for optimizer in optimizers:
            for number, group in enumerate(vars(optimizer).get("param_groups", ())):
                name = f"{type(optimizer).__name__} group {number}"
                groups.update((id(parameter), name) for parameter in group.get("params", ()))
        names: dict[int, str] = {}
        for model in models:
            for name, parameter in named_parameters_of(model):
                names[id(parameter)] = name
                self._own(found, parameter, "parameters", _module_of(name, model), name)
                if (gradient := gradient_of(parameter)) is not None:
                    group = groups.get(id(parameter), "of no optimizer")
                    self._own(found, gradient, "gradients", group, _gradient(name))
        for optimizer in optimizers:
            for of, key, tensor in named_states(optimizer):
                group = groups.get(id(of), type(optimizer).__name__)
                self._own(found, tensor, "optimizer", group, f"{key} of {names.get(id(of), 'a parameter')}")
        for model in models:
            for name, buffer in named_buffers_of(model):
                self._own(found, buffer, "buffers", _module_of(name, model), name)
        return found

    def _is_on_device(self, tensor: torch.Tensor) -> bool:
        kind = self.watch.device.partition(":")[0]
        return kind not in ("cuda", "xpu", "mps") or tensor.device.type == kind

    # The graph

    def _read(self, starts: Iterable[Any]) -> None:
        """Reads what nodes saved that were not read yet: each storage belongs to the node that saved it first."""
        calls = self._calls
        assert calls is not None
        nodes = sorted(((number_of(node), node) for node in iter_nodes(starts, MOST_NODES)), key=lambda each: each[0])
        heard: dict[int, tuple[int, Any]] = {}
        sizes: dict[int, int] = {}
        for number, node in nodes:
            call = calls.call_of(number)
            for tensor in saved_tensors(node):
                key = storage_key(tensor)
                if key is None or key[0] in self._owned or key[0] in self._saved or not self._is_on_device(tensor):
                    continue
                module, place = calls.calls[call] if call >= 0 else ("after the forward", NOWHERE)
                row = _row("activations", module, place, node.name(), key[1], tensor)
                self._saved[key[0]] = _Saved(number, call, row)
                sizes[call] = sizes.get(call, 0) + key[1]
            if call >= 0:
                heard[call] = (number, node)
            for upstream, _ in node.next_functions:
                self._expect(upstream, number)
        for call in sorted(heard, key=lambda call: -sizes.get(call, 0))[:_MOST_HEARD]:
            number, node = heard[call]
            hook = Hook(functools.partial(self._hear, calls, calls.calls[call].module, number), self._fails)
            without_number(node.register_prehook, hook)

    def _expect(self, node: Any, number: int) -> None:
        """The gradient of a parameter is there once the first node that used it has run."""
        parameter: Any = getattr(node, "variable", None)
        key = storage_key(parameter) if parameter is not None else None
        if key is not None and (own := self._owned.get(key[0])) is not None and gradient_of(parameter) is None:
            name = _gradient(own.what)
            self._arrivals[name] = min(number, self._arrivals.get(name, number))

    def _hear(self, calls: ModuleCalls, module: str, number: int, *grads: Any) -> None:
        """A backward is about to go through a module."""
        if calls is self._calls:
            calls.moment("backward", module, number)

    # The peak

    def _contents(self, calls: ModuleCalls, record: BatchRecord, peak_bytes: int) -> PeakContents:
        moments = calls.moments
        at = next((at for at, moment in enumerate(moments) if moment.peak_bytes >= peak_bytes), len(moments))
        before = moments[at - 1] if at else None
        ended = moments[at] if at < len(moments) else None
        rows = list(self._alive(before, ended))
        known = sum(row.nbytes for row in rows)
        if ended is not None and ended.kind == "forward":
            when, module = "forward", ended.module
        elif ended is None:
            when, module = "step" if self.watch.optimizers else "backward", ""
        else:
            when, module = ended.kind, before.module if before is not None and ended.kind == "backward" else ""
        rows += (kept := self._kept(peak_bytes, max(peak_bytes - known, 0)))
        rest = peak_bytes - known - sum(row.nbytes for row in kept)
        if rest > 0:
            rows.append(_row("temporaries", module or when, NOWHERE, f"temporaries of the {when}", rest))
        return PeakContents(
            batch=record.batch,
            stage=record.stage.value,
            allocated_peak_bytes=peak_bytes,
            when=when,
            module=module,
            rows=rows,
            moments=[(each.kind, each.module, each.allocated_bytes) for each in moments],
        )

    def _alive(self, before: Moment | None, ended: Moment | None) -> Iterator[Row]:
        """What was alive between two moments, as far as it has an owner."""
        kind = ended.kind if ended is not None else "step"
        if kind == "step":
            yield from self._late.values()
            yield from (row for row in self._owned.values() if row.category == "inputs")
            return
        yield from self._owned.values()
        number = before.number if before is not None else 0
        runs = kind == "backward" and before is not None and before.kind == "backward"
        for row in self._late.values():
            if runs and row.category == "gradients" and self._arrivals.get(row.what, -1) > number:
                yield row
        for saved in self._saved.values():
            if kind == "forward":
                alive = saved.number < number
            elif kind == "loss":
                alive = saved.call >= 0
            else:
                alive = not runs or saved.number <= number
            if alive:
                yield saved.row

    def _kept(self, peak_bytes: int, room: int) -> list[Row]:
        """What lay there before the batch and has no owner: by the names that findings say keep something."""
        there = sum(row.nbytes for row in self._owned.values())
        left = min((self._begin_bytes or 0) - there, room)
        if left * _LEAST < peak_bytes:
            return []
        rows = []
        told = [(_bytes_of(fact, self.watch.batch), fact.place) for fact in self.watch.facts.values()]
        for nbytes, place in sorted(told, key=lambda each: -each[0]):
            if min(nbytes, left) > 0 and place.holder is not None:
                rows.append(_row("kept", place.holder, place, "what it keeps", min(nbytes, left)))
                left -= rows[-1].nbytes
        if left * _LEAST >= peak_bytes:
            rows.append(_row("kept", "no name known", NOWHERE, "allocated before the batch began", left))
        return rows


def _gradient(name: str) -> str:
    return f"gradient of {name}"


def _bytes_of(fact: Fact, batch: int) -> int:
    """What a fact's holder keeps; of one that grows, with what came since it was measured."""
    return int(fact.kept_bytes + getattr(fact, "bytes_per_batch", 0) * max(batch - fact.batch, 0))


def _row(category: str, group: str, place: Place, what: str, nbytes: int, tensor: torch.Tensor | None = None) -> Row:
    shape, dtype = (tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")) if tensor is not None else (None, "")
    return Row(category, group, place.file, place.line, place.function, what, shape, dtype, nbytes)


def _module_of(name: str, model: nn.Module) -> str:
    return name.rpartition(".")[0] or type(model).__name__
