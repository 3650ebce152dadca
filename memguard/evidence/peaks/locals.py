"""Large locals alive at the optimizer step though nothing reads them again: a batch's, or an evaluation's."""

from __future__ import annotations

import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import CodeType
from typing import Any, final

import torch
from torch import nn

from memguard.autograd.graph import saved_storages
from memguard.evidence.interface import Probe
from memguard.evidence.minimum_sizes import least_of_device, least_of_peak, least_of_remark
from memguard.evidence.owners import state_of
from memguard.evidence.peaks.large_locals import LargeLocal, find_large_locals, hangs_on_others, is_on_host
from memguard.heap.attributes import is_tensor
from memguard.heap.containers import elements_of, tensors_in
from memguard.heap.frames import read_locals, user_frames
from memguard.records.facts import LargeLocals, PreviousOutputsAlive
from memguard.source.model import Sources
from memguard.source.stores import spelled
from memguard.torch_objects.storages import owned_storages, storages_of

LOOKS = frozenset({2, 4, 40})
"""Optimizer steps at which it is asked."""


@final
class LocalsProbe(Probe):
    """Asks at a few optimizer steps what the functions on the stack still hold, and generators that wait."""

    def _prepare(self) -> None:
        self._steps = 0
        self._told: set[str] = set()
        self._forward: dict[CodeType, int] = {}
        """Lines of the user's functions from which the model was called, before the step at which it is asked."""
        self._before = 0
        """The batch's peak up to that forward."""
        self._answers: set[tuple[int, int]] = set()
        """Ids and types of what models gave without a graph since then: states of a frozen one, in a list or object."""
        self.unsubscribe("on_forward_start", "on_forward_end")

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Notes where the first forward before a look begins: the peak comes after it."""
        if module.training and not self._forward:
            self._forward = {frame.f_code: frame.f_lineno for frame in user_frames(sys._getframe(1))}
            self._before = self.watch.read().allocated_peak_bytes or 0
            self.unsubscribe("on_forward_start")

    def on_forward_end(self, module: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """Looks at functions that go on to the backward, and are left before the step."""
        graphs = [tensor.grad_fn for tensor in tensors_in(output, 2) if tensor.grad_fn is not None]
        if not graphs:
            nests = (part for part in (output, *elements_of(output)) if not is_tensor(part))
            self._answers.update((id(part), id(type(part))) for part in nests)
        if not module.training or not graphs:
            return
        self.unsubscribe("on_forward_end")
        owned = owned_storages(self.watch.models)
        for graph in graphs:
            owned.update(saved_storages(graph))  # backward needs those: no variable keeps them
        self._look_before_backward(owned)

    def _look_before_backward(self, owned: dict[int, int]) -> None:
        record = self.watch.record
        much, below = least_of_peak(record), least_of_remark(record)
        if record is None or much is None or below is None:
            return
        found = self._find(below // 2, owned)
        idle = [local for local in found if local.backward_follows and not (local.shared or local.last_turns)]
        highest = record.allocated_peak_bytes
        if self._tell([local for local in idle if local.bytes >= much // 4], much, highest, at="backward"):
            return
        if self._is_at_peak(highest or 0):
            self._tell(idle, below, highest, at="backward")

    def _is_at_peak(self, highest: int) -> bool:
        """Whether the batch's peak came in the forward that ends now, or is yet to come."""
        now = self.watch.read().allocated_peak_bytes
        return now is not None and (now < highest or now > self._before)

    def on_optimizer_step_start(self, optimizer: torch.optim.Optimizer) -> None:
        """Looks at a few of the steps."""
        self._steps += 1
        if self._steps in LOOKS:
            self._look(optimizer)
        if self._steps >= max(LOOKS):
            self.unsubscribe("on_optimizer_step_start", "on_forward_start", "on_forward_end")
        elif self._steps + 1 in LOOKS:
            self._forward, self._answers = {}, set()
            self.hear("on_forward_start", "on_forward_end")

    def _look(self, optimizer: torch.optim.Optimizer) -> None:
        owned = owned_storages(self.watch.models)
        owned.update(storages_of(state_of(optimizer)))
        least = least_of_device(self.watch.device_total_bytes)
        found = self._find(max(least // 4, 1), owned)
        record = self.watch.record
        peak = record.allocated_peak_bytes if record is not None else None
        self._tell_waiting(owned, least_of_peak(record) or least, peak)
        if self._tell_last_turns(found, least, peak):
            return
        if self._tell([local for local in found if not local.last_turns], least, None):
            return
        much, below = least_of_peak(record), least_of_remark(record)
        if record is None or much is None or below is None:
            return
        if least > below:
            found = self._find(below // 2, owned)
            if self._tell_last_turns(found, below, peak):
                return
        if self._forward:
            since = {code: line - 1 for code, line in self._forward.items()}
            found = self._find(max(much // 4, 1), owned, since)
            self._tell(found, much, record.allocated_peak_bytes)

    def _find(
        self, least: int, owned: dict[int, int], since: dict[CodeType, int] | None = None
    ) -> tuple[LargeLocal, ...]:
        return find_large_locals(
            least, ignore=owned.__contains__, since=since, answers=self._answers, on_host=self._is_host_watched
        )

    @property
    def _is_host_watched(self) -> bool:
        """Whether tensors in host memory count; where a device is watched they are none of its peak."""
        return self.watch.device.startswith(("cpu", "virtual"))

    def _tell_waiting(self, owned: dict[int, int], least: int, peak_bytes: int | None) -> None:
        """What a generator of batches read before it began to give them out is there all through each of them."""
        waiting, on_host = self.watch.generators, self._is_host_watched
        for local in find_waiting_locals(least, waiting, ignore=owned.__contains__, on_host=on_host):
            self._tell([local], least, peak_bytes)

    def _tell_last_turns(self, found: Iterable[LargeLocal], least: int, peak_bytes: int | None) -> bool:
        """What stood below the step is the last batch's, and was there all through this one."""
        idle = [local for local in found if local.last_turns and local.read_again is False and local.bytes >= least]
        idle = [local for local in idle if not (local.shared and hangs_on_others(local))]
        for local in idle:
            if local.name in self._told:
                continue
            self._told.add(local.name)
            self.report(
                PreviousOutputsAlive(
                    **self.watch.now,
                    place=local.place,
                    bytes=local.bytes,
                    graph=False,
                    steady=True,
                    peak_bytes=peak_bytes,
                )
            )
        return bool(idle)

    def _tell(
        self, found: Iterable[LargeLocal], least: int, peak_bytes: int | None, *, at: str = "optimizer step"
    ) -> bool:
        idle = [local for local in found if local.read_again is False and local.name not in self._told]
        if sum(local.bytes for local in idle) < least:
            return False
        idle = [local for local in idle if not (local.shared and hangs_on_others(local))]
        nbytes = sum(local.bytes for local in idle)
        if not idle or nbytes < least:
            return False
        self._told.update(local.name for local in idle)
        names = tuple(spelled(local.name, local.place.source) for local in idle)
        self.report(
            LargeLocals(
                **self.watch.now,
                place=replace(idle[0].place, holder=", ".join(names[:5])),
                names=names,
                bytes=nbytes,
                peak_bytes=peak_bytes,
                at=at,
            )
        )
        return True


def find_waiting_locals(
    min_bytes: int, generators: Iterable[weakref.ref[Any]], *, ignore: Callable[[int], bool], on_host: bool
) -> Iterator[LargeLocal]:
    """Variables that a generator set before the loop which gives out the batches, and that it does not read again.

    What the loop itself sets is as old as a batch: whoever draws it may need it still.

    Args:
        min_bytes: Smallest storage that counts.
        generators: The user's.
        ignore: Told a storage's key; whether it belongs to parameters, gradients or optimizer state.
        on_host: Whether tensors in host memory count; where a device is watched they are none of its peak.
    """
    sources = Sources()
    for ref in generators:
        generator = ref()
        if type(generator) is not types.GeneratorType or generator.gi_running or generator.gi_frame is None:
            continue
        code, line = generator.gi_code, generator.gi_frame.f_lineno
        source = sources.get(code.co_filename)
        scope = source.scope_of(code.co_firstlineno, code.co_name) if source is not None else None
        loops = source.loops_in(scope.node, line) if source is not None and scope is not None else []
        begins = loops[0].lineno if loops else 0
        for local in find_large_locals(min_bytes, ignore=ignore, frame=generator.gi_frame):
            place = local.place
            if (place.file, place.function) != (code.co_filename, code.co_name) or (place.line or 0) >= begins:
                continue
            if not on_host and is_on_host(read_locals(generator.gi_frame).get(local.name)):
                continue
            if local.read_again is False and not hangs_on_others(local, frame=generator.gi_frame, others=(generator,)):
                yield local
