"""Exceptions that keep the tensors of failed calls."""

from __future__ import annotations

import sys
from collections.abc import Container, Iterable
from typing import final

import torch
from torch import nn

from memguard.autograd.graph import held_bytes
from memguard.evidence.interface import Now, Probe
from memguard.evidence.naming.holders import HolderSearch
from memguard.evidence.oom.errors import oom_in
from memguard.evidence.owners import owned_by, state_of
from memguard.heap.children import Via
from memguard.heap.containers import tensors_in
from memguard.heap.frames import (
    call_site,
    failed_frames,
    is_user_frame,
    place_of,
    read_locals,
    running_frames,
    user_frames,
)
from memguard.heap.snapshot import HeapSnapshot, is_below_failure
from memguard.records.facts import ExceptionHolds, Place
from memguard.source.sites import handler_at
from memguard.torch_objects.module_parts import buffers_of, gradients_of, parameters_of
from memguard.torch_objects.storages import storages_of

MAX_LOOKS = 3
MAX_NAMES = 8
DEPTH = 2
"""Of tuples, lists, dicts and dataclasses in a variable."""


@final
class ExceptionsProbe(Probe):
    """Asks at each forward whether an out-of-memory error is being handled right now."""

    def _prepare(self) -> None:
        self._looks = 0
        self._told: set[tuple[str | None, int]] = set()
        """File and line of the handlers."""

    def on_forward_in_handler(self) -> None:
        """One look at the error that is being handled."""
        error = sys.exc_info()[1]
        if error is None or self._looks >= MAX_LOOKS or oom_in(error) is not error:
            return
        self._looks += 1
        place, handler = _retry_site()
        if (place.file, handler) in self._told:
            return  # a retry in two halves is one fault: the place is where the first of them runs
        self._told.add((place.file, handler))
        names, held = held_by(error, owned_by(self.watch.models, self.watch.optimizers))
        self.report(
            ExceptionHolds(
                **self.watch.now,
                place=place,
                exception=type(error).__name__,
                handling=True,
                names=names,
                bytes=sum(held.values()),
            )
        )


def _retry_site() -> tuple[Place, int]:
    """The line of the innermost handler that runs now, and where that begins, else where the model is called."""
    for frame in user_frames():
        handler = handler_at(frame.f_code.co_filename, frame.f_lineno)
        if handler is not None:
            return place_of(frame), handler
    place = call_site()
    return place, place.line or 0


def find_stored(survey: HolderSearch, now: Now, *, ignore: Iterable[int] = ()) -> tuple[ExceptionHolds, ...]:
    """Exceptions in the user's variables and containers that hold tensors, by the name that keeps them.

    What somebody else holds as well, such as the data that a failed function was given, is none of theirs.
    """
    found: dict[Place, ExceptionHolds] = {}
    links = [link for link in survey.snapshot.links if issubclass(type(link.value), BaseException)]
    errors = [link for link in links if link.via not in (Via.PART, Via.ROOT)]
    if not errors:
        return ()
    plain = (leaf.value for leaf in survey.snapshot.tensors if not is_below_failure(leaf))
    failed, living = left_by_failures(survey.snapshot)
    elsewhere = (set(ignore) - failed) | living | storages_of(plain).keys()
    for link in errors:
        names, held = held_by(link.value, elsewhere)
        if held:
            elsewhere.update(held)
            place = survey.cause(link)
            old = found.get(place)
            total = sum(held.values()) + (old.bytes if old is not None else 0)
            kind = type(link.value).__name__
            found[place] = ExceptionHolds(**now, place=place, exception=kind, handling=False, names=names, bytes=total)
    return tuple(found.values())


def held_by(error: BaseException, ignore: Container[int]) -> tuple[tuple[str, ...], dict[int, int]]:
    """The variables of an exception's failed functions that hold tensors, heaviest first, and all their storages."""
    sizes: dict[str, int] = {}
    total: dict[int, int] = {}
    for frame, _ in failed_frames(error, running_frames()):
        for name, value in read_locals(frame).items() if is_user_frame(frame) else ():
            held: dict[int, int] = {}
            for tensor in _tensors_of(value):
                held.update((key, size) for key, size in held_bytes(tensor, {}).items() if key not in ignore)
            if held:
                sizes[f"{frame.f_code.co_name}() {name}"] = sum(held.values())
                total.update(held)
    return tuple(sorted(sizes, key=lambda name: -sizes[name]))[:MAX_NAMES], total


def _tensors_of(value: object) -> Iterable[torch.Tensor]:
    """The tensors of a variable: of a model its weights and gradients, of an optimizer its state."""
    if issubclass(type(value), nn.Module):
        weights = list(parameters_of(value))  # type: ignore[arg-type]
        return [*weights, *buffers_of(value), *gradients_of(weights)]  # type: ignore[arg-type]
    if issubclass(type(value), torch.optim.Optimizer):
        return state_of(value)  # type: ignore[arg-type]
    return tensors_in(value, DEPTH)


def left_by_failures(snapshot: HeapSnapshot) -> tuple[set[int], set[int]]:
    """Storages of models and optimizers: of those to which failed calls alone lead, and of all others that have a name.

    The run knows of the former, as of any model that was called, and owns none of them.
    """
    failed, living = set[int](), set[int]()
    for link in snapshot.links:
        if issubclass(type(link.value), (nn.Module, torch.optim.Optimizer)) and link.parent is not None:
            is_failed = all(is_below_failure(name) for name in (link, *snapshot.others(link)))
            (failed if is_failed else living).update(storages_of(_tensors_of(link.value)))
    return failed - living, living
