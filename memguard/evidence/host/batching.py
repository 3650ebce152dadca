"""Where a program decides which samples form a batch: the line to change when a batch is too long."""

from __future__ import annotations

from types import FrameType, FunctionType
from typing import Any

from torch.utils.data import DataLoader

from memguard.evidence.host.datasets import ITERATORS, Reading, place_of_attribute, readings
from memguard.evidence.naming.names import user_files
from memguard.heap.attributes import attributes_of, is_user_class
from memguard.heap.frames import is_user_file, read_locals, user_frames
from memguard.records.facts import NOWHERE, Place
from memguard.source.sites import LoaderCall, loader_calls, yielded_batch

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
    return _place(_the_one(list(loader_calls(user_files())), reading))


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


def _the_one(calls: list[LoaderCall], reading: Reading) -> LoaderCall | None:
    """The call that makes the loader in use: the only one, or the only one under one of its names."""
    frames = [frame for _, frame in zip(range(MAX_FRAMES), user_frames(), strict=False)]
    names, files = _names(frames, reading), {frame.f_code.co_filename for frame in frames}
    named, near = [call for call in calls if call.name in names], [call for call in calls if call.file in files]
    for likely in (
        [call for call in named if call in near],
        named,
        [call for call in near or calls if call.function == "train_dataloader"],  # Lightning's, which returns it
        calls,
    ):
        if likely:
            return likely[0] if len(likely) == 1 else None
    return None


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


def _place(call: LoaderCall | None) -> Place:
    if call is None:
        return NOWHERE
    return Place(file=call.file, line=call.line, function=call.function, holder=call.name, source=call.source)
