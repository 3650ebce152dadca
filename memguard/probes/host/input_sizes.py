"""How much each batch brings in, and how much the largest one to come will, where the dataset shows it."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, final

from torch import nn

from memguard.facts import NOWHERE, Fact, InputSize, Place
from memguard.probes.host.batching import batching_place
from memguard.probes.host.datasets import may_cut, place_of_attribute, readings, unwrap
from memguard.probes.host.lengths import lengths_in
from memguard.probes.interface import Probe, Watch
from memguard.probes.shapes import Entry, count_elements, describe_shapes
from memguard.stats import Stage

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
class InputSizesProbe(Probe):
    """Tells new sizes of the input while they vary."""

    name: ClassVar[str] = "input sizes"

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
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
                    batch=watch.batch,
                    stage=watch.stage,
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
                    for name, lengths in lengths_in(vars(dataset)):
                        longest = longest_ahead(values, lengths, batch_size=size)
                        if longest is None:
                            continue
                        self._largest = count_elements(stretched(newest, newest[position][1][dimension], longest))
                        self._place, self._samples = batching_place(reading), name
                        if self._place is NOWHERE:
                            self._place = _where(dataset, name)
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
    """The longest that a batch will be, if the samples' lengths explain those so far and longer ones are to come.

    Args:
        values: Lengths of the batches so far, in order.
        lengths: Of all samples.
        batch_size: Samples in a batch.
    """
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
        (name, tuple(longest if extent == length and at > 0 else extent for at, extent in enumerate(shape)), dtype)
        if len(shape) > 1
        else (name, tuple(longest if extent == length else extent for extent in shape), dtype)
        for name, shape, dtype in entries
    )


def _form(entries: tuple[Entry, ...]) -> list[tuple[str, int]]:
    return [(name, len(shape)) for name, shape, _ in entries]


def _where(dataset: Any, name: str) -> Place:
    try:
        return place_of_attribute(dataset, name)[0]
    except (AttributeError, TypeError):
        return NOWHERE
