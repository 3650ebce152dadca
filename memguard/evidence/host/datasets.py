"""The datasets that the program reads, its suspended generators, and where it decides which samples form a batch.

`_BaseDataLoaderIter` and its attributes are private; checked in torch 2.13.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import types
import weakref
from dataclasses import dataclass
from types import FrameType, FunctionType
from typing import Any, final

import torch.utils.data.dataloader as loaders
from torch.utils.data import DataLoader

from memguard.evidence.host.fetching import unwrap
from memguard.evidence.interface import Probe
from memguard.evidence.kept.growth_facts import MIN_HOST_BYTES
from memguard.evidence.kept.incremental_scan import grew
from memguard.evidence.naming.names import user_files
from memguard.heap.attributes import attributes_of, is_user_class
from memguard.heap.frames import is_user_file, is_user_frame, read_locals, user_frames
from memguard.heap.roots import MAX_OBJECTS, instances_of
from memguard.records.facts import NOWHERE, Place
from memguard.records.stats import BatchRecord, Stage
from memguard.source.model import Sources
from memguard.source.name_query import NameQuery, SearchContext
from memguard.source.search import find_statement
from memguard.source.sites import cuts_samples, loader_calls, yielded_batch

ITERATORS: tuple[type[Any], ...] = tuple(filter(None, [getattr(loaders, "_BaseDataLoaderIter", None)]))
"""Classes of what a loader gives to a loop; with none of them nothing is read, as far as is known."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """One loader in use. Holds its dataset: drop it at once."""

    dataset: Any
    workers: int
    batch_size: int | None
    collate: Any = None
    sampler: Any = None
    """What makes the batches: a sampler of torch's or the user's."""
    collates: bool = True
    """Whether it gives lists of samples' numbers; with ``batch_size=None`` it may give one at a time."""


def readings() -> list[Reading]:
    """The loaders that are being iterated over; some tens of milliseconds."""
    return [reading_of(iterator) for iterator in instances_of(*ITERATORS)] if ITERATORS else []


def reading_of(iterator: Any) -> Reading:
    """The loader whose iterator this is, an instance of one of `ITERATORS`."""
    state = vars(iterator)
    sampler = state.get("_index_sampler")
    size = vars(sampler).get("batch_size") if hasattr(type(sampler), "__dict__") and _has_dict(sampler) else None
    workers = len(state.get("_workers") or ())
    size = size if type(size) is int else None
    collates = state.get("_auto_collation") is True
    return Reading(state.get("_dataset"), workers, size, state.get("_collate_fn"), sampler, collates)


def have_workers() -> bool:
    """Whether this process has children of `multiprocessing`; costs nothing."""
    module = sys.modules.get("multiprocessing.process")
    return bool(getattr(module, "_children", None))


def place_of_attribute(dataset: Any, name: str, kind: str = "list") -> tuple[Place, bool]:
    """Where a dataset's attribute gets what it holds, and whether that adds to it after the dataset was made.

    Args:
        dataset: The dataset.
        name: The attribute's name.
        kind: How it is filled: as a ``"list"`` and other containers by index or method, or as a ``"set"``.
    """
    files = [file for file in map(_file_of, type(dataset).__mro__) if file is not None]
    classes = tuple(kind.__name__ for kind in type(dataset).__mro__[:-1])
    query = NameQuery(name=name, attribute=True, classes=classes, base="self", kinds=(kind, "tensor"))
    statement = find_statement(query, files, Sources(), SearchContext(graph=False, numbers=True)) if files else None
    if statement is None:
        return NOWHERE, False
    return statement.place(name), statement.grows and not statement.quiet


def may_cut(reading: Reading) -> bool:
    """Whether a dataset's methods or what makes its batches may cut samples: a slice with an end, or words for it."""
    functions = [value for one in unwrap(reading.dataset) for value in vars(type(one)).values()]
    functions += [reading.collate, vars(type(reading.collate)).get("__call__")]
    for function in functions:
        code = getattr(getattr(function, "__func__", function), "__code__", None)
        if isinstance(code, types.CodeType) and _cuts(code.co_filename, code.co_firstlineno):
            return True
    return False


def _cuts(file: str, first_line: int) -> bool:
    if "torch" in file.replace("\\", "/").split("/"):
        return False  # the default collate function cuts nothing
    return cuts_samples(file, first_line)


def _file_of(kind: type) -> str | None:
    for value in vars(kind).values():
        code = getattr(value, "__code__", None) if type(value).__name__ == "function" else None
        if code is not None:
            return str(code.co_filename)
    return None


def _has_dict(thing: object) -> bool:
    try:
        return type(object.__getattribute__(thing, "__dict__")) is dict
    except AttributeError:  # it has slots, or is C's
        return False


MAX_FRAMES = 16


def batching_place(reading: Reading | None = None) -> Place:
    """Where the user's own sampler has the batches ready, or yields them; else the call that makes the loader.

    Args:
        reading: The loader in use; the first one that is being iterated over if not given.
    """
    if reading is None:
        reading = next(iter(readings()), None)
        if reading is None:
            return NOWHERE
    if is_user_class(type(reading.sampler)):
        for name, value in attributes_of(reading.sampler).items():
            if type(value) in (list, tuple) and value and type(value[0]) in (list, tuple):
                place = place_of_attribute(reading.sampler, name)[0]
                if place is not NOWHERE:
                    return place
        if reading.collates and (place := _yield_of(type(reading.sampler))) is not NOWHERE:
            return place
    return _the_one(list(loader_calls(user_files())), reading)


def _yield_of(sampler: type) -> Place:
    """Where a sampler's own ``__iter__`` yields a batch that it puts together there."""
    functions = (vars(kind).get("__iter__") for kind in sampler.__mro__ if "__iter__" in vars(kind))
    function = next(functions, None)
    if type(function) is not FunctionType:
        return NOWHERE
    code = function.__code__
    found = yielded_batch(code.co_filename, code.co_firstlineno)
    if found is None or not is_user_file(code.co_filename):
        return NOWHERE
    line, source = found
    name = str(getattr(code, "co_qualname", code.co_name))
    return Place(file=code.co_filename, line=line, function=name, holder=sampler.__name__, source=source)


def _the_one(calls: list[Place], reading: Reading) -> Place:
    """The call that makes the loader in use: the only one, or the only one under one of its names."""
    frames = [frame for _, frame in zip(range(MAX_FRAMES), user_frames(), strict=False)]
    names, files = _names(frames, reading), {frame.f_code.co_filename for frame in frames}
    named, near = [call for call in calls if call.holder in names], [call for call in calls if call.file in files]
    for likely in (
        [call for call in named if call in near],
        named,
        [call for call in near or calls if call.function == "train_dataloader"],  # Lightning's, which returns it
        calls,
    ):
        if likely:
            return likely[0] if len(likely) == 1 else NOWHERE
    return NOWHERE


def _names(frames: list[FrameType], reading: Reading) -> set[str]:
    """The variables that hold the loader or its iterator."""
    names = set()
    for variables in (*map(read_locals, frames), *(frame.f_globals for frame in frames[-1:])):
        for name, value in list(variables.items()):
            if _reads(value, reading):
                names.add(name)
            elif name == "self":
                names.update(key for key, held in list(attributes_of(value).items()) if _reads(held, reading))
    return names


def _reads(value: Any, reading: Reading) -> bool:
    if issubclass(type(value), ITERATORS):
        return attributes_of(value).get("_dataset") is reading.dataset
    return issubclass(type(value), DataLoader) and attributes_of(value).get("dataset") is reading.dataset


LOOKS = (5, 17, 199)
"""Training batches after which they are looked for, each just before a round over all objects (`ScanSchedule`)."""
BEFORE = frozenset(look // 2 + third * (look - look // 2) // 3 for look in LOOKS for third in range(3))
"""Those between which memory must have grown until then: what a loop begins with came before, or does not go on."""
MAX_GENERATORS = 64


@final
class GeneratorsProbe(Probe):
    """Finds them through the garbage collector and adds them, weakly, to `ProbeContext.roots`.

    A ``for`` loop keeps its iterator on the interpreter's stack, where neither frames nor the collector's referents
    show it: a generator's own list of all it gave out would not be seen, nor what a dataset keeps whose loader
    has no name, as in ``for x in DataLoader(Images())``.
    """

    def _prepare(self) -> None:
        self._batches = 0
        self._before: list[BatchRecord | None] = []

    def on_batch_end(self) -> None:
        """Looks for them now and then."""
        if self.watch.stage is not Stage.TRAIN:
            return
        self._batches += 1
        if self._batches in BEFORE:
            self._before.append(self.watch.record)
        if self._batches not in LOOKS:
            return
        if self._batches == LOOKS[-1]:
            self.unsubscribe("on_batch_end")
        if not self._may_keep():
            return  # to look for them takes as long as hundreds of short batches
        known, datasets = self.watch.generators, self.watch.datasets
        known[:] = [ref for ref in known if ref() is not None]
        datasets.clear()
        for found in instances_of(types.GeneratorType, *ITERATORS, max_objects=MAX_OBJECTS):
            if type(found) is not types.GeneratorType:
                with contextlib.suppress(TypeError):  # one with slots alone is left out
                    datasets.append(weakref.ref(reading_of(found).dataset))
            elif len(known) < MAX_GENERATORS and _is_users(found) and not any(ref() is found for ref in known):
                known.append(weakref.ref(found))

    def _may_keep(self) -> bool:
        """Whether memory has grown lately, on the device, or step by step on the host; where it is known."""
        known = [record for record in (*self._before, self.watch.record) if record is not None]
        self._before = []
        if not known:
            return True
        first, last = known[0], known[-1]
        on_device = first.allocated_end_bytes is not None and grew(first.allocated_end_bytes, last.allocated_end_bytes)
        return on_device or all(
            grew(before.host_rss_bytes, after.host_rss_bytes, MIN_HOST_BYTES * (after.batch - before.batch))
            for before, after in itertools.pairwise(known)
        )

    def remove(self) -> None:
        """Forgets them."""
        self.watch.generators.clear()
        self.watch.datasets.clear()


def _is_users(generator: types.GeneratorType[Any, Any, Any]) -> bool:
    frame = generator.gi_frame
    return frame is not None and is_user_frame(frame)
