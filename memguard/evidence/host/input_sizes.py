"""What the rules of capacity ask of forwards: where they are called, how large their input is, and will be."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, final

import torch
from torch import nn

from memguard.evidence.host.datasets import batching_place, may_cut, readings
from memguard.evidence.host.fetching import unwrap
from memguard.evidence.interface import Probe
from memguard.evidence.shapes import Entry, count_elements, describe_shapes
from memguard.heap.attributes import attributes_of, is_numpy_array
from memguard.heap.frames import call_site
from memguard.records.facts import NOWHERE, InputSize, ModelCalled
from memguard.records.stats import Stage

MAX_SIZES = 96
"""Sizes that are told; that is plenty for a line."""
MIN_SIZES = 8
"""Sizes after which the dataset is asked for its longest sample, and values of a dimension that make it the varying."""
SHIFTS = (0, 1, -1, 2)
"""By how much a batch may be longer than its longest sample: tokens for beginning and end; targets shifted by one."""
LIKELY = 5.0
"""Samples longer than any so far that should have come by now, if nothing cut them."""

KEPT = 256
"""Batches whose shapes are compared."""
ALIKE = 32
"""Batches of one size, after which one in four is looked at."""
_TRAIN = Stage.TRAIN  # asked in each batch; an attribute of an Enum is looked up through its metaclass


@final
class CalledProbe(Probe):
    """Tells once for each stage where its first forward is called; in training, that of a model which is trained."""

    def _prepare(self) -> None:
        self._told: set[Stage] = set()

    def on_stage_start(self, stage: Stage) -> None:
        """Listens again in a stage that is new."""
        if stage not in self._told:
            self.hear("on_forward_start")

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Tells, and listens no more."""
        stage = self.watch.stage
        if stage is Stage.TRAIN and not (module.training and torch.is_grad_enabled()):
            return
        self.unsubscribe("on_forward_start")
        place = call_site()
        if stage not in self._told and place.line is not None:
            self._told.add(stage)
            self.report(ModelCalled(batch=self.watch.batch, stage=stage, place=place))


@final
class InputSizesProbe(Probe):
    """Tells new sizes of the input while they vary."""

    def _prepare(self) -> None:
        self._batch = -1
        self._told: set[int] = set()
        self._entries: deque[tuple[Entry, ...]] = deque(maxlen=KEPT)
        self._largest: int | None = None
        self._place = NOWHERE
        self._samples: str | None = None
        self._asked = False

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """The first forward of a training batch shows its size."""
        watch = self.watch
        if watch.stage is not _TRAIN or watch.batch == self._batch:
            return
        if len(self._told) == 1 and len(self._entries) > ALIKE and watch.batch & 3:
            return
        self._batch = watch.batch
        entries = describe_shapes(args or dict(kwargs))
        if len(self._told) < MAX_SIZES:
            self._entries.append(entries)
        elements = count_elements(entries)
        if elements in self._told or len(self._told) >= MAX_SIZES:
            return
        self._told.add(elements)
        if len(self._told) >= MIN_SIZES and not self._asked:
            self._asked = True
            self._ask()
        if len(self._told) > 1:
            self.report(
                InputSize(
                    **watch.now,
                    place=self._place,
                    elements=elements,
                    largest_elements=self._largest,
                    samples=self._samples,
                )
            )

    def _ask(self) -> None:
        """Asks the datasets in use how long their longest sample is."""
        newest = self._entries[-1]
        for position, dimension, values in varying(self._entries):
            for reading in readings():
                if may_cut(reading):
                    continue
                size = reading.batch_size or newest[position][1][0]
                for dataset in unwrap(reading.dataset):
                    for name, lengths in lengths_in(attributes_of(dataset)):
                        longest = longest_ahead(values, lengths, batch_size=size)
                        if longest is None:
                            continue
                        self._largest = count_elements(stretched(newest, newest[position][1][dimension], longest))
                        self._place, self._samples = batching_place(reading), name
                        return


def varying(batches: Sequence[tuple[Entry, ...]]) -> list[tuple[int, int, list[int]]]:
    """The dimensions that differ between batches: (position of the input, dimension, its values in order)."""
    alike = [entries for entries in batches if _form(entries) == _form(batches[-1])]
    found = []
    for position, (_, shape, _) in enumerate(batches[-1]):
        for dimension in range(len(shape)):
            values = [entries[position][1][dimension] for entries in alike]
            if len(set(values)) >= MIN_SIZES:
                found.append((position, dimension, values))
    return found


def longest_ahead(values: list[int], lengths: list[int], *, batch_size: int) -> int | None:
    """The longest that a batch will be, if the samples' lengths explain those so far and longer ones are to come."""
    known = set(lengths)
    shift = next((by for by in SHIFTS if all(value - by in known for value in values)), None)
    if shift is None:
        return None
    seen, longest = max(values), max(lengths) + shift
    if longest <= seen:
        return None
    ascending = all(after >= before for before, after in itertools.pairwise(values))
    longer = sum(length + shift > seen for length in lengths) / len(lengths)
    if not ascending and longer * batch_size * len(values) > LIKELY:
        return None  # by now one of them should have come: something cuts them
    return longest


def stretched(entries: tuple[Entry, ...], length: int, longest: int) -> tuple[Entry, ...]:
    """The inputs of a batch with another length in the place of its own."""
    return tuple(
        (
            name,
            (*shape[: len(shape) > 1], *(longest if one == length else one for one in shape[len(shape) > 1 :])),
            dtype,
        )
        for name, shape, dtype in entries
    )


def _form(entries: tuple[Entry, ...]) -> list[tuple[str, int]]:
    return [(name, len(shape)) for name, shape, _ in entries]


MAX_SAMPLES = 200_000
MIN_SAMPLES = 16
MAX_DIMENSIONS = 3
_WORDS = ("len", "size", "dur", "frames", "tokens", "count")
_TEXT = (str, bytes)


def lengths_in(attributes: dict[str, Any]) -> Iterator[tuple[str, list[int]]]:
    """Each reading of an attribute as the samples' lengths: (its name, a length for each sample).

    A list of sequences, of tensors (by each of their dimensions) or of records of them; or numbers under a name that
    says what they are.
    """
    for name, value in attributes.items():
        numbers = _numbers(name, value)
        if numbers is not None:
            yield name, numbers
        elif type(value) in (list, tuple) and len(value) >= MIN_SAMPLES:
            first = value[0]
            samples = value[:MAX_SAMPLES]
            if type(first) is dict:
                for key in islice(first, 16):
                    yield from _named(name, [sample.get(key) for sample in samples if type(sample) is dict])
            elif type(first) is tuple:
                for index in range(min(len(first), 8)):
                    yield from _named(name, [s[index] for s in samples if type(s) is tuple and index < len(s)])
            else:
                yield from _named(name, samples)


def _named(name: str, samples: Iterable[Any]) -> Iterator[tuple[str, list[int]]]:
    shapes = [shape for sample in samples if (shape := _shape(sample)) is not None]
    if len(shapes) < MIN_SAMPLES:
        return
    for dimension in range(min(min(map(len, shapes)), MAX_DIMENSIONS)):
        lengths = [shape[dimension] for shape in shapes]
        if min(lengths) != max(lengths):
            yield name, lengths


def _shape(sample: Any) -> tuple[int, ...] | None:
    kind = type(sample)
    if kind is torch.Tensor or is_numpy_array(kind):
        return tuple(sample.shape) or None
    if kind in (list, tuple, *_TEXT):
        return (len(sample),)
    return None


def _numbers(name: str, value: Any) -> list[int] | None:
    if not any(word in name.lower() for word in _WORDS):
        return None
    kind = type(value)
    if kind is torch.Tensor or is_numpy_array(kind):
        if len(value.shape) != 1 or value.shape[0] < MIN_SAMPLES or "int" not in str(value.dtype):
            return None
        return [int(number) for number in value[:MAX_SAMPLES].tolist()]
    if kind in (list, tuple) and len(value) >= MIN_SAMPLES and all(type(number) is int for number in value[:64]):
        return [number for number in value[:MAX_SAMPLES] if type(number) is int]
    return None
