"""A cheap scan in slices that decides whether a full one is worth it, and when it is made.

Counts instead of naming. What it suspects is then named by a `HolderSearch`, which costs some ten milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import FrameType
from typing import Any, final

import torch
from torch import nn

from memguard.evidence.interface import ProbeContext
from memguard.heap.attributes import attributes_of, is_tensor, is_tensor_class
from memguard.heap.children import Via
from memguard.heap.containers import container_of, elements_of, is_named, length_of, unwrapped
from memguard.heap.history import MIN_GROWTH, HeapHistory, ObjectGrowth, is_plain, telling_element
from memguard.heap.host_sizes import block_of, is_from_worker, size_of
from memguard.heap.walk import Link, SlicedWalk
from memguard.torch_objects.storages import storage_key, storages_of

MIN_PIN_BYTES = 64 * 1024
PIN_RATIO = 8
COPY_SHARE = 0.9
MIN_MERGED = 4
"""Tensors under names that may be a copy by their bytes alone: merged adapters are few of the parameters by count."""
HALF_AS_WIDE = 0.5
"""What such a copy takes at least of the model's bytes: it may be of half the precision."""
STATE_TIMES = 2
"""What is plainly a state dict is looked at though it has but half as many tensors as the model: a backbone's."""
MIN_HANDED = 128
"""Elements of a container that keeps what workers handed over: each may keep several files open."""
MIN_HANDED_BYTES = 16 * 1024**2
"""Or what they take of the shared memory, where so many came that `MIN_GROWTH` is reached."""


@final
@dataclass(slots=True)
class Suspects:
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
    swollen: dict[int, ObjectGrowth] = field(default_factory=dict)
    """By the id of a tensor, array or text; only good at once."""


@final
class IncrementalScan:
    """Counts what one walk meets. Keeps numbers, never an object."""

    def __init__(self, history: HeapHistory) -> None:
        self.history = history
        self._owned: set[int] = set()
        self._parameters: dict[object, int] = {}
        self._foreign: dict[int, int] = {}
        self._foreign_storages: set[int] = set()
        self._weights: dict[object, int] = {}
        """Bytes of the parameters of each watched model."""
        self._lists: dict[int, tuple[int, float, list[int]]] = {}
        """How many tensors a container has, about how many bytes where they lie under names, and some storages."""
        self._views: dict[int, set[tuple[int, int]]] = {}
        self._sizes: dict[int, int] = {}
        self._exceptions: set[int] = set()
        self._handed: set[int] = set()

    def visit(self, link: Link) -> None:
        """One object that a walk meets."""
        value = link.value
        kind = type(value)
        if is_tensor_class(kind):
            self._meet_tensor(value, link)
        elif issubclass(kind, nn.Module):
            self._meet_module(value, link)
        elif issubclass(kind, BaseException):
            if link.via not in (Via.PART, Via.ROOT) and BaseException.__dict__["__traceback__"].__get__(value):
                self._exceptions.add(id(value))
        elif container_of(kind) is not None:
            self._meet_container(value, link)
        elif size := block_of(value):
            self.history.measure(link, size)

    def conclude(self) -> Suspects:
        """What is suspect so far; of pinned storages that can only be told once the walk is complete."""
        least = COPY_SHARE * min(filter(None, self._parameters.values()), default=0)  # a loss has none
        most = HALF_AS_WIDE * COPY_SHARE * min(filter(None, self._weights.values()), default=0)
        copies = {
            path
            for path, (length, nbytes, keys) in self._lists.items()
            if least and keys and (length >= least or nbytes >= most > 0) and not self._owned.issuperset(keys)
        }
        if least and sum(self._foreign.values()) >= least and not self._owned.issuperset(self._foreign_storages):
            copies.update(self._foreign)
        pinned = {
            key
            for key, views in self._views.items()
            if key not in self._owned and sum(size for _, size in views) * PIN_RATIO < self._sizes[key]
        }
        handed, self._handed = frozenset(self._handed), set()
        grown, swollen = self.history.take()
        return Suspects(
            grown=grown,
            pinned=frozenset(pinned),
            copies=frozenset(copies),
            exceptions=frozenset(self._exceptions),
            handed=handed,
            swollen=swollen,
        )

    def _meet_tensor(self, tensor: Any, link: Link) -> None:
        key = storage_key(tensor)
        if key is None or issubclass(type(tensor), nn.Parameter):
            return
        self.history.meet_tensor(link, key[1])
        if key[1] >= MIN_PIN_BYTES:
            self._sizes[key[0]] = key[1]
            part = (tensor.storage_offset(), tensor.numel() * tensor.element_size())
            self._views.setdefault(key[0], set()).add(part)

    def _meet_module(self, module: nn.Module, link: Link) -> None:
        attributes = attributes_of(module)
        parameters = _tensors_in(attributes.get("_parameters"))
        if link.watched:
            self._parameters[link.root] = self._parameters.get(link.root, 0) + len(parameters)
            storages = storages_of(parameters)
            self._weights[link.root] = self._weights.get(link.root, 0) + sum(storages.values())
            self._owned.update(storages)
            self._owned.update(storages_of(_tensors_in(attributes.get("_buffers"))))
        elif parameters:
            self._foreign[link.path] = len(parameters)
            self._foreign_storages.update(storages_of(parameters))

    def _meet_container(self, value: Any, link: Link) -> None:
        longer, value = self.history.meet_container(link), unwrapped(value)
        length, newest = length_of(value), telling_element(value)
        is_much = longer >= MIN_GROWTH and not is_plain(newest) and size_of(newest) * length >= MIN_HANDED_BYTES
        if (length >= MIN_HANDED or is_much) and is_from_worker(newest):
            self._handed.add(id(link.value))
        if issubclass(type(value), (list, dict)):
            sample = [one for one in islice(elements_of(value), 4) if is_tensor(one)]
            if sample:
                times = STATE_TIMES if _is_state(value) else 1
                sizes, is_state = storages_of(sample), length >= MIN_MERGED and is_named(value)
                nbytes = length * sum(sizes.values()) / len(sample) if is_state else 0.0
                self._lists[link.path] = (times * length, nbytes, list(sizes))


def _tensors_in(registered: object) -> list[torch.Tensor]:
    values: Iterable[Any] = dict.values(registered) if issubclass(type(registered), dict) else ()  # type: ignore[arg-type]
    return [value for value in values if is_tensor(value)]


def _is_state(value: Any) -> bool:
    """Whether a dictionary's keys are names of weights."""
    if not issubclass(type(value), dict):
        return False
    keys = islice(dict.__iter__(value), 4)
    return any(type(key) is str and key.endswith(("weight", "bias")) for key in keys)


BEGINS = (6, 18, 48, 200, 212, 2000, 2012)
"""Batches of a stage from which on a round may begin; each goes on for as many batches as it needs."""

APART = 12
"""Batches between the two rounds that are asked for: what one of them meets for a moment is gone in the other."""

RESERVED = 3
"""Rounds that must be left for an end of an epoch to take one."""


@final
class ScanSchedule:
    """The rounds of one stage, or of one pass over the data in evaluation.

    Args:
        rests: Whether this pass is left out.
        before: Those of the pass before, with whose counts this one's are compared.
        away: Batches of other stages since then.

    Attributes:
        count: Batches that were looked at.
        batches: Batches of this stage: those since the last look count as of the stage in which the next one is taken.
        is_open: Whether a round is under way.
        history: What the rounds so far saw.
        has_looked: Whether something that this round suspects was looked at; what comes later waits for its end.
        waiting: Containers that grew and were not looked at yet.
        confirmed: Storages of which only a small part was seen in each of the last two rounds.
    """

    def __init__(self, *, rests: bool = False, before: ScanSchedule | None = None, away: int = 0) -> None:
        self.count = self.batches = 0
        self.history: HeapHistory = HeapHistory() if before is None else before.history
        self.history.skip(away)
        self.confirmed: frozenset[int] = frozenset()
        """What one batch holds for a moment is no pin."""
        self._pinned: frozenset[int] = frozenset()
        self.has_looked = False
        self.waiting: dict[int, tuple[int, int]] = {}
        self._begins = [] if rests else list(BEGINS)
        self._asked: list[int] = []
        self._walk: SlicedWalk | None = None
        self.is_open = False
        self._screening = IncrementalScan(self.history)
        self._at_begin: tuple[int, int | None, int | None] | None = None

    def is_due(self) -> bool:
        """Whether another round may begin; one that is still open ends there: what is near was met in it."""
        asked, begins = self._asked, self._begins
        return bool((asked and self.count >= asked[0]) or (begins and self.count >= begins[0]))

    def ask(self) -> None:
        """Two rounds are to be made now, besides those that are due: something was seen to grow."""
        self._asked = [self.count, self.count + APART]

    @property
    def is_unseen(self) -> bool:
        """Whether this pass was too short for its first round."""
        return 0 < self.count < BEGINS[0] and len(self._begins) == len(BEGINS)

    def is_worth_one_more(self, watch: ProbeContext, nbytes: int) -> bool:
        """Whether, at the end of an epoch, so many bytes are allocated more than when the last round began.

        The next one may be hundreds of batches away, where each of them is long; some are left for those.
        """
        record = watch.record
        now = record.allocated_end_bytes if record is not None else None
        before = self._at_begin[1] if self._at_begin is not None else None
        few = RESERVED <= len(self._begins) < len(BEGINS) - 2 and not self.is_open
        return few and now is not None and before is not None and now - before >= nbytes > 0

    def begin(self, watch: ProbeContext, host_bytes_per_batch: int) -> None:
        """Begins one; after the first two, only if something grew since the last: graphs' nodes lie in neither figure.

        Args:
            watch: The run.
            host_bytes_per_batch: By how much the process must have grown on the host to matter.
        """
        asked = bool(self._asked) and self.count >= self._asked[0]
        del (self._asked if asked else self._begins)[0]
        record, before = watch.record, self._at_begin
        allocated = record.allocated_end_bytes if record is not None else None
        resident = record.host_rss_bytes if record is not None else None
        if before is not None and len(self._begins) < len(BEGINS) - 2 and not asked:
            least = host_bytes_per_batch * (watch.batches - before[0])
            if not (grew(before[1], allocated) or grew(before[2], resident, least)):
                return
        self._at_begin = (watch.batches, allocated, resident)
        if self._walk is not None:
            self._end(self._screening.conclude())
        self.has_looked = False
        self._walk, self.is_open = SlicedWalk(watch.models), True
        self._screening = IncrementalScan(self.history)
        self.history.begin_round()

    def advance(self, watch: ProbeContext, frames: Sequence[FrameType], steps: int) -> Suspects | None:
        """Goes on for some steps; what it has come to.

        Args:
            watch: The run.
            frames: The user's frames as they stand now.
            steps: How many may be made: one for each object that is met or entered.
        """
        walk, screening = self._walk, self._screening
        if walk is None:
            return None
        self.history.batch, self.history.count = watch.batches, self.batches
        left = steps

        def visit(link: Link) -> None:
            nonlocal left
            left -= 1
            screening.visit(link)

        def is_enough() -> bool:
            nonlocal left
            left -= 1
            return left < 0

        walk.advance(frames, watch.roots(), visit, is_enough)
        suspicions = screening.conclude()
        if walk.complete:
            self._end(suspicions)
        return suspicions

    def _end(self, suspicions: Suspects) -> None:
        self._walk, self.is_open = None, False
        self.confirmed = suspicions.pinned & self._pinned
        self._pinned = suspicions.pinned


def grew(before: int | None, now: int | None, by: int = 0) -> bool:
    """Whether a number of bytes grew by more than that, or is not known."""
    return before is None or now is None or now - before > by
