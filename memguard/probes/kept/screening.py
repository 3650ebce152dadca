"""A cheap look at everything in reach, a slice at a time: is there anything that is worth a real one?

Counts instead of naming. What it suspects is named by a `Survey`, which costs some ten milliseconds, and only then.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, final

import torch
from torch import nn

from memguard.heap.attributes import attributes_of
from memguard.heap.children import Via
from memguard.heap.containers import container_of, latest_of, length_of, unwrapped
from memguard.heap.host_sizes import block_of, is_from_worker, size_of
from memguard.heap.walk import Link
from memguard.probes.kept.swelling import Measure, Swelling, Swellings
from memguard.storages import storage_key

PER_BATCH = 0.9
"""Elements a batch by which a container must grow."""
MIN_GROWTH = 8
"""Elements by which it must have grown in all."""
STEADY = 0.6
"""What grows by less than that with every batch must go on as it did before: a cache fills ever more slowly."""
SAME_RATE = 0.02
"""By how much two of them may differ where the elements were replaced as well."""
MIN_PIN_BYTES = 64 * 1024
PIN_RATIO = 8
COPY_SHARE = 0.9
STATE_TIMES = 2
"""What is plainly a state dict is looked at though it has but half as many tensors as the model: a backbone's."""
MIN_HANDED = 128
"""Elements of a container that keeps what workers handed over: each may keep several files open."""
MIN_HANDED_BYTES = 16 * 1024**2
"""Or what they take of the shared memory, where so many came that `MIN_GROWTH` is reached."""
MANY, MIN_PLAIN_BYTES = 64, 16 * 1024
"""Numbers and short texts a batch, and what they take on the host: a row for each sample, not for each batch."""
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_DANGLING: tuple[type, ...] = tuple(getattr(torch, name) for name in ("Stream", "Event") if hasattr(torch, name))
"""Of a stream or event that is gone a weak reference is not told (torch.cuda's in 2.11; not so in 2.15): when it is
dropped itself, the process crashes."""


@final
@dataclass(slots=True)
class Suspicions:
    """What one screening comes to, in plain data."""

    grown: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By a container's id: how many elements it had, and in which batch."""
    pinned: frozenset[int] = frozenset()
    """Keys of storages of which only a small part is seen."""
    copies: frozenset[int] = frozenset()
    """Positions of what has as many tensors as a model, in storages of their own."""
    exceptions: frozenset[int] = frozenset()
    """Ids of exceptions that somebody keeps, with their tracebacks."""
    handed: frozenset[int] = frozenset()
    """Ids of long containers whose elements DataLoader workers handed over."""
    swollen: dict[int, Swelling] = field(default_factory=dict)
    """By the id of a tensor, array or text; only good at once."""


@final
class Screening:
    """Counts what one walk meets. Keeps numbers, never an object.

    Args:
        before: Lengths of containers by their positions, as an earlier screening left them (`lengths`).
        newest: Likewise what was added to them last (`newest`).
        measures: Likewise what single tensors came to (`swellings.measures`).
        rates: Likewise the elements a batch by which containers had grown (`rates`).

    Attributes:
        lengths: (elements, batch) of each container, by its position; of one that grew by a few, as they were before.
        newest: What was added to it last, weakly. If that is gone at the next screening, the container did not grow: it
            is another one under the same name, like the list of this episode's losses, or was emptied and filled again.
    """

    def __init__(
        self,
        before: Mapping[int, tuple[int, int]] | None = None,
        newest: Mapping[int, weakref.ref[Any]] | None = None,
        measures: Mapping[int, Measure] | None = None,
        rates: Mapping[int, float] | None = None,
    ) -> None:
        self.lengths: dict[int, tuple[int, int]] = {}
        self.newest: dict[int, weakref.ref[Any]] = {}
        self.batch = self.count = 0
        self._before = before or {}
        self._newest_before = newest or {}
        self._rates_before = rates or {}
        self.rates: dict[int, float] = {}
        self.swellings = Swellings(measures or {})
        self._grown: dict[int, tuple[int, int]] = {}
        self._owned: set[int] = set()
        self._parameters: dict[object, int] = {}
        self._foreign: dict[int, int] = {}
        self._foreign_storages: set[int] = set()
        self._lists: dict[int, tuple[int, list[int]]] = {}
        self._views: dict[int, set[tuple[int, int]]] = {}
        self._sizes: dict[int, int] = {}
        self._exceptions: set[int] = set()
        self._handed: set[int] = set()

    def visit(self, link: Link) -> None:
        """One object that a walk meets."""
        value = link.value
        kind = type(value)
        if issubclass(kind, torch.Tensor):
            self._meet_tensor(value, link)
        elif issubclass(kind, nn.Module):
            self._meet_module(value, link)
        elif issubclass(kind, BaseException):
            if link.via not in (Via.PART, Via.ROOT) and BaseException.__dict__["__traceback__"].__get__(value):
                self._exceptions.add(id(value))
        elif container_of(kind) is not None:
            self._meet_container(value, link)
        elif size := block_of(value):
            self.swellings.meet_block(value, size, link.path, self.batch, self.count)

    def conclude(self) -> Suspicions:
        """What is suspect so far; of pinned storages that can only be told once the walk is complete."""
        grown, self._grown = self._grown, {}
        least = COPY_SHARE * min(filter(None, self._parameters.values()), default=0)  # a loss has none
        copies = {number for number, (length, keys) in self._lists.items() if least and length >= least and keys}
        copies = {number for number in copies if not self._owned.issuperset(self._lists[number][1])}
        if least and sum(self._foreign.values()) >= least and not self._owned.issuperset(self._foreign_storages):
            copies.update(self._foreign)
        pinned = {
            key
            for key, views in self._views.items()
            if key not in self._owned and sum(size for _, size in views) * PIN_RATIO < self._sizes[key]
        }
        exceptions = frozenset(self._exceptions)
        handed, self._handed = frozenset(self._handed), set()
        return Suspicions(grown, frozenset(pinned), frozenset(copies), exceptions, handed, self.swellings.take())

    def _meet_tensor(self, tensor: Any, link: Link) -> None:
        key = storage_key(tensor)
        if key is None or issubclass(type(tensor), nn.Parameter):
            return
        self.swellings.meet(tensor, key[1], link.path, self.batch, self.count)
        if key[1] < MIN_PIN_BYTES:
            return
        self._sizes[key[0]] = key[1]
        part = (tensor.storage_offset(), tensor.numel() * tensor.element_size())
        self._views.setdefault(key[0], set()).add(part)

    def _meet_module(self, module: nn.Module, link: Link) -> None:
        attributes = attributes_of(module)
        parameters = _tensors_in(attributes.get("_parameters"))
        if link.watched:
            self._parameters[link.root] = self._parameters.get(link.root, 0) + len(parameters)
            for tensor in (*parameters, *_tensors_in(attributes.get("_buffers"))):
                key = storage_key(tensor)
                if key is not None:
                    self._owned.add(key[0])
        elif parameters:
            self._foreign[link.path] = len(parameters)
            self._foreign_storages.update(key[0] for tensor in parameters if (key := storage_key(tensor)) is not None)

    def _meet_container(self, value: Any, link: Link) -> None:
        outer, value = id(value), unwrapped(value)
        length = length_of(value)
        if not length:
            return
        then = self._before.get(link.path)
        newest = _telling_of(value)
        last = self._newest_before.get(link.path)
        if last is not None and last() is None and not self._is_copied_longer(link.path, length, then):
            then = None
        is_young = then is not None and 0 < length - then[0] < MIN_GROWTH
        self.lengths[link.path] = then if then is not None and is_young else (length, self.batch)
        if then is not None and self._goes_on(link.path, length, then) and self._counts(link.path, newest):
            self._grown[outer] = then
        if self._is_much(length, then, newest) and is_from_worker(newest):
            self._handed.add(outer)
        if (seen := _reference(newest)) is not None:
            self.newest[link.path] = seen
        if issubclass(type(value), (list, dict)):
            elements = dict.values(value) if issubclass(type(value), dict) else list.__iter__(value)
            sample = [tensor for tensor in islice(elements, 4) if issubclass(type(tensor), torch.Tensor)]
            if sample:
                if _is_state(value):
                    length *= STATE_TIMES
                keys = [key[0] for tensor in sample if (key := storage_key(tensor)) is not None]
                self._lists[link.path] = (length, keys)

    def _is_copied_longer(self, number: int, length: int, then: tuple[int, int] | None) -> bool:
        """Whether a container whose elements are gone grew by exactly as much a batch as the last time.

        A metric's forward copies all that it has; an episode's list is not so regular.
        """
        if then is None or length - then[0] < MIN_GROWTH:
            return False
        rate = self.rates[number] = (length - then[0]) / max(self.batch - then[1], 1)
        return rate >= PER_BATCH and math.isclose(rate, self._rates_before.get(number, 0.0), rel_tol=SAME_RATE)

    def _is_much(self, length: int, then: tuple[int, int] | None, newest: Any) -> bool:
        """Whether a container has so many elements, or grew by such large ones, as to matter to shared memory."""
        if length >= MIN_HANDED:
            return True
        grew = then is not None and length - then[0] >= MIN_GROWTH
        return grew and not _is_plain(newest) and size_of(newest) * length >= MIN_HANDED_BYTES

    def _goes_on(self, number: int, length: int, then: tuple[int, int]) -> bool:
        """Whether a container grew with every batch, or more seldom and as steadily as before."""
        rate = self.rates[number] = (length - then[0]) / max(self.batch - then[1], 1)
        before = self._rates_before.get(number, 0.0)
        return length - then[0] >= MIN_GROWTH and (rate >= PER_BATCH or rate >= STEADY * before > 0)

    def _counts(self, number: int, newest: Any) -> bool:
        """Whether what a container grows by may matter: not the few numbers of each batch that every loop logs."""
        if not _is_plain(newest):
            return True
        rate = self.rates[number]
        return rate >= MANY and rate * size_of(newest) >= MIN_PLAIN_BYTES


def _tensors_in(registered: object) -> list[torch.Tensor]:
    values: Iterable[Any] = dict.values(registered) if issubclass(type(registered), dict) else ()  # type: ignore[arg-type]
    return [value for value in values if issubclass(type(value), torch.Tensor)]


def _reference(value: Any, depth: int = 3) -> weakref.ref[Any] | None:
    """A weak reference to an element, or to a part of one that is a tuple, list or dictionary.

    None to parameters: `torch.utils.swap_tensors` refuses tensors to which there is one. None to streams and events.
    """
    kind = type(value)
    if issubclass(kind, (tuple, list, dict)):
        values: Any = dict.values if issubclass(kind, dict) else (list if issubclass(kind, list) else tuple).__iter__
        parts = islice(values(value), 8) if depth else ()
        found = (_reference(part, depth - 1) for part in parts)
        return next((reference for reference in found if reference is not None), None)
    if issubclass(kind, (*_PLAIN, *_DANGLING, nn.Parameter, type)):
        return None
    try:
        return weakref.ref(value)
    except TypeError:  # its class has no room for one
        return None


def _is_state(value: Any) -> bool:
    """Whether a dictionary's keys are names of weights."""
    if not issubclass(type(value), dict):
        return False
    keys = islice(dict.__iter__(value), 4)
    return any(type(key) is str and key.endswith(("weight", "bias")) for key in keys)


def _telling_of(container: Any) -> Any:
    """What was added last, or a little before where that is plain: a loss between the numbers of a log."""
    latest = latest_of(container)
    return next((element for element in latest if not _is_plain(element)), latest[0] if latest else None)


def _is_plain(value: Any, depth: int = 2) -> bool:
    """Whether a new element is a number, a text or a few of them: the log that every loop keeps."""
    kind = type(value)
    if issubclass(kind, _PLAIN):
        return not issubclass(kind, (str, bytes)) or len(value) < 4096
    if depth and kind in (tuple, list, dict) and len(value) <= 32:
        return all(_is_plain(part, depth - 1) for part in (value.values() if kind is dict else value))
    return False
