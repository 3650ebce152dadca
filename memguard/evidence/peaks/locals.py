"""Large locals alive at the optimizer step though nothing reads them again: whose they are, and who else holds them."""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import CodeType
from typing import Any, final

import torch
from torch import nn

from memguard.autograd.graph import saved_storages
from memguard.evidence.interface import Probe
from memguard.evidence.owners import state_of
from memguard.heap.attributes import is_tensor
from memguard.heap.containers import elements_of, tensors_in
from memguard.heap.frames import is_module_level, is_script, read_locals, user_frames
from memguard.records.facts import LargeLocals, Place, PreviousOutputsAlive
from memguard.source.model import Sources
from memguard.source.reads import read_local
from memguard.thresholds import least_of_device, least_of_peak, least_of_remark
from memguard.torch_objects.storages import owned_storages, storage_key, storages_of, users_of

_NESTS = (list, tuple, dict)


@final
@dataclass(frozen=True, slots=True)
class LargeLocal:
    """A local variable that holds a large storage alive."""

    name: str
    bytes: int
    place: Place
    """Where the variable got its value."""
    read_again: bool | None
    """Whether the function reads it before it gets a new value; None if its source is not at hand."""
    last_turns: bool = False
    """Whether it is the loop's last turn's: what sets it in every turn stands below the line that runs, or runs."""
    shared: bool = False
    """Whether something else may hold the same storage: a caller, what it was taken from, what a loop goes through."""
    backward_follows: bool = False
    """Whether the function calls backward further down: the peak comes while the variable is there."""


def find_large_locals(
    min_bytes: int,
    *,
    ignore: Callable[[int], bool] = lambda key: False,
    since: Mapping[types.CodeType, int] | None = None,
    answers: Collection[tuple[int, int]] = (),
    on_host: bool = True,
) -> tuple[LargeLocal, ...]:
    """Local variables of the functions on the stack, and of the script, that hold large tensors, the largest first.

    Args:
        min_bytes: Smallest storage that counts.
        ignore: Told a storage's key; whether it belongs to parameters, gradients or optimizer state.
        since: Of each function, the line from which on reads count; by default the one that runs. Others are left out.
        answers: Lists, dicts and the like that a model gave, by their ids and those of their types: their tensors count
            as their variable's. Of others only tensors count.
        on_host: Whether tensors in host memory count; where a device is watched they are none of its peak.
    """
    sources = Sources()
    found: dict[int, LargeLocal] = {}
    frames: dict[int, types.FrameType] = {}
    for user_frame in user_frames(sys._getframe(1)):
        code = user_frame.f_code
        if (is_module_level(code) and not is_script(code.co_filename)) or (since is not None and code not in since):
            continue
        line = user_frame.f_lineno if since is None else since[code]
        variables = read_locals(user_frame)
        for name in variables:
            value = variables[name]  # items() would keep a pair that has it too
            storages = _storages(value, min_bytes, answers) if on_host or not is_on_host(value) else {}
            if not storages:
                continue
            local = _local(name, 0, user_frame, sources, line, runs=since is None)
            for key, size in storages.items():
                if ignore(key):
                    continue
                local = replace(local, bytes=size)
                known = found.get(key)
                if known is None:
                    found[key], frames[key] = local, user_frame
                elif frames[key] is not user_frame:
                    # Another function holds it as well; if that one reads it on, nothing is gained here.
                    read_again = known.read_again if local.read_again is False else local.read_again
                    found[key] = replace(known, shared=True, read_again=read_again)
                elif local.read_again is not False:  # another name of it, or a part of it
                    found[key] = replace(known, read_again=local.read_again)
    frames.clear()
    return tuple(sorted(_by_name(found.values()), key=lambda local: -local.bytes))


def hangs_on_others(local: LargeLocal) -> bool:
    """Whether something else holds what a variable holds: a dataset, an object, a view. Then ``del`` gains nothing."""
    for user_frame in user_frames(sys._getframe(1)):
        code = user_frame.f_code
        if (code.co_filename, code.co_name) != (local.place.file, local.place.function):
            continue
        variables = read_locals(user_frame)
        # A batch, of which x is a part; by identity, for a metaclass may define equality.
        nests = [value for value in variables.values() if any(type(value) is kind for kind in _NESTS)]
        value, others = variables.get(local.name), [user_frame.f_globals, nests, *nests]
        if not local.shared and not is_tensor(value):
            return False  # a model's answer, with a dict of its own
        return is_held_elsewhere(value, variables, others, views=local.shared)
    return False


def _storages(value: object, min_bytes: int, answers: Collection[tuple[int, int]]) -> dict[int, int]:
    """The storages that a variable holds as a large tensor, or as a model's answer without a graph: bytes by key."""
    if is_tensor(value):  # the first asks no object
        key = storage_key(value)
        return {key[0]: key[1]} if key is not None and key[1] >= min_bytes else {}
    if (id(value), id(type(value))) not in answers:  # to hash a class may run the user's code
        return {}
    tensors = list(tensors_in(value, 3))
    found = {} if any(tensor.requires_grad for tensor in tensors) else storages_of(tensors)
    return found if sum(found.values()) >= min_bytes else {}


def is_on_host(value: object) -> bool:
    """Whether it is a tensor in host memory."""
    return is_tensor(value) and value.device.type == "cpu"


def _by_name(found: Iterable[LargeLocal]) -> Iterator[LargeLocal]:
    """What one variable holds in several tensors, as one."""
    sizes: dict[LargeLocal, int] = {}
    for local in found:
        alike = replace(local, bytes=0)
        sizes[alike] = sizes.get(alike, 0) + local.bytes
    return (replace(local, bytes=size) for local, size in sizes.items())


def _local(name: str, size: int, frame: types.FrameType, sources: Sources, line: int, *, runs: bool) -> LargeLocal:
    code = frame.f_code
    model = sources.get(code.co_filename)
    said = read_local(model, code.co_firstlineno, code.co_name, name, line, frame.f_lineno, runs=runs)
    place = Place(file=code.co_filename, line=said.line or line, function=code.co_name, holder=name, source=said.source)
    return LargeLocal(name, size, place, said.read_again, said.last_turns, said.shared, said.backward_follows)


MAX_PARTS = 256


def is_held_elsewhere(
    value: object, variables: Mapping[str, object], others: Sequence[object] = (), *, views: bool = True
) -> bool:
    """Whether anything else refers to a value, or to what is in it; asks all objects, some 10 to 30 ms.

    Of views of other tensors, and of tensors of other classes, that is not known: they count as held.

    Args:
        value: A tensor, or a list, tuple or dict.
        variables: The dict by which the function's variables were read, which has it too.
        others: What may refer to it besides.
        views: Whether other tensors with the same storage count.
    """
    parts: list[object] = [value]
    for part in parts:
        if len(parts) > MAX_PARTS:
            return True  # too many to be sure
        if type(part) is torch.Tensor:
            if views and (part._base is not None or (users_of(part) or 1) > 1):
                return True
        elif is_tensor(part):
            return True
        else:
            parts += islice(elements_of(part), MAX_PARTS + 1)
    asked = tuple(parts)  # from Python 3.13 on, the arguments of the call below are found as well
    own = {id(part) for part in (*parts, parts, asked, variables, *others)}
    referrers = gc.get_referrers(*asked)
    return any(id(one) not in own and type(one) is not types.FrameType for one in referrers)


LOOKS = frozenset({2, 4, 40})
"""Optimizer steps at which it is asked."""


@final
class LocalsProbe(Probe):
    """Asks at a few optimizer steps what the functions on the stack still hold."""

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
        highest = self.watch.peak_bytes
        much, below = least_of_peak(highest), least_of_remark(highest)
        if much is None or below is None:
            return
        found = self._find(below // 2, owned)
        idle = [local for local in found if local.backward_follows and not (local.shared or local.last_turns)]
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
        peak = self.watch.peak_bytes
        if self._tell_last_turns(found, least, peak):
            return
        if self._tell([local for local in found if not local.last_turns], least, None):
            return
        much, below = least_of_peak(peak), least_of_remark(peak)
        if much is None or below is None:
            return
        if least > below:
            found = self._find(below // 2, owned)
            if self._tell_last_turns(found, below, peak):
                return
        if self._forward:
            since = {code: line - 1 for code, line in self._forward.items()}
            found = self._find(max(much // 4, 1), owned, since)
            self._tell(found, much, peak)

    def _find(
        self, least: int, owned: dict[int, int], since: dict[CodeType, int] | None = None
    ) -> tuple[LargeLocal, ...]:
        on_host = self.watch.device.startswith(("cpu", "virtual"))
        return find_large_locals(least, ignore=owned.__contains__, since=since, answers=self._answers, on_host=on_host)

    def _tell_last_turns(self, found: Iterable[LargeLocal], least: int, peak_bytes: int | None) -> bool:
        """What stood below the step is the last batch's, and was there all through this one."""
        idle = [local for local in found if local.last_turns and local.read_again is False and local.bytes >= least]
        idle = [local for local in idle if not hangs_on_others(local)]
        for local in idle:
            if local.name in self._told:
                continue
            self._told.add(local.name)
            self.report(
                PreviousOutputsAlive(
                    **self.watch.now,
                    place=local.place,
                    bytes=local.bytes,
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
        idle = [local for local in idle if not hangs_on_others(local)]
        nbytes = sum(local.bytes for local in idle)
        if not idle or nbytes < least:
            return False
        self._told.update(local.name for local in idle)
        names = tuple(local.name for local in idle)
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
