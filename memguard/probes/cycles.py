"""Graphs and tensors that only the cyclic garbage collector frees."""

from __future__ import annotations

import functools
import gc
import linecache
import re
import sys
import types
from collections.abc import Callable
from typing import Any, ClassVar, final

import torch

from memguard.facts import NOWHERE, Fact, FreedByCollector, FunctionContextHolds, Place
from memguard.probes.contents import is_user_class
from memguard.probes.contexts import function_of, place_of_context
from memguard.probes.frames import is_user_file, read_locals
from memguard.probes.interface import Probe, Watch
from memguard.probes.ledger import Mark
from memguard.probes.sizes import storages_of

MIN_GRAPHS = 3
"""Forwards whose graph the collector freed, before the cycle is named."""
WAITING = 6
"""Graphs of so many earlier batches alive without a holder are worth one collection."""
MAX_GARBAGE = 200_000


@final
class CyclesProbe(Probe):
    """Hears the collector begin and end; a graph that dies in between was held by a cycle.

    The cycle is named once, by a collection that keeps what it finds for a moment.
    """

    name: ClassVar[str] = "cycles"

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._graphs = self._seen = 0
        self._tried = 0

    def install(self) -> None:
        """Listens to the collector."""
        gc.callbacks.append(self._on_collection)

    def remove(self) -> None:
        """Listens no more."""
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        self.watch.ledger.collecting = phase == "start"

    def on_batch_end(self) -> None:
        """Counts the graphs that the collector freed, and names their cycle when there are enough."""
        ledger = self.watch.ledger
        self._graphs += ledger.collected - self._seen
        self._seen = ledger.collected
        waiting = self._waiting() if ledger.has_before(self.watch.batch - 1) else []
        # The collector freed some, or (once) so many wait that it may be its turn: only then is a look worth its time.
        if waiting and (self._graphs or (not self._tried and len({mark.batch for mark in waiting}) >= WAITING)):
            if self._tried < 3:
                self._tried += 1
                self._name_cycle()
        elif self._graphs >= 4 * MIN_GRAPHS:
            self._tell(None, NOWHERE, None)

    def _waiting(self) -> list[Mark]:
        """Forwards of earlier batches whose graph ought to be gone: nothing is concluded from them alone."""
        watch = self.watch
        return [
            mark
            for mark in list(watch.ledger.live.values())
            if mark.batch < watch.batch - 1 and (mark.used or not mark.training)
        ]

    def _name_cycle(self) -> None:
        before = {id(mark): mark for mark in self._waiting()}
        found = look_at_garbage()
        if found is None:
            return
        freed = [mark for mark in before.values() if mark.alive <= 0]
        if not freed:
            return
        self._graphs += len(freed)
        if self._graphs < MIN_GRAPHS:
            return
        if found.context is not None:
            self.stop_hearing("on_batch_end")
            name, attributes, place = found.context
            self.report(
                FunctionContextHolds(
                    batch=self.watch.batch,
                    stage=self.watch.stage,
                    place=place,
                    function_name=name,
                    attributes=attributes,
                    bytes=found.bytes,
                    cycle=True,
                    count=len(freed),
                )
            )
            return
        self._tell(found.text, found.place, found.bytes)

    def _tell(self, text: str | None, place: Place, nbytes: int | None) -> None:
        self.stop_hearing("on_batch_end")
        self.report(
            FreedByCollector(
                batch=self.watch.batch,
                stage=self.watch.stage,
                place=place,
                graphs=self._graphs,
                bytes=nbytes,
                cycle=text,
                collector_enabled=gc.isenabled(),
            )
        )


@final
class Garbage:
    """What one collection found: plain data."""

    __slots__ = ("bytes", "context", "place", "text")

    def __init__(self) -> None:
        self.bytes = 0
        self.text: str | None = None
        self.place = NOWHERE
        self.context: tuple[str, tuple[str, ...], Place] | None = None


def look_at_garbage() -> Garbage | None:
    """Collects once, keeping what is found long enough to look at it; everything is freed before this returns.

    Returns None where somebody else keeps garbage (``gc.set_debug``), for that is theirs.
    """
    if gc.garbage or gc.get_debug():
        return None
    flags = gc.get_debug()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
    finally:
        gc.set_debug(flags)
    try:
        return _describe(gc.garbage) if len(gc.garbage) <= MAX_GARBAGE else Garbage()
    finally:
        gc.garbage.clear()
        gc.collect()


def _describe(garbage: list[Any]) -> Garbage:
    found = Garbage()
    tensors = [obj for obj in garbage if issubclass(type(obj), torch.Tensor)]
    found.bytes = sum(storages_of(tensors).values())
    numbers = {id(tensor) for tensor in tensors}
    best = 10.0
    for obj in garbage:
        kind = type(obj)
        if issubclass(kind, torch.autograd.function.BackwardCFunction) and best > 0:
            kept = {name: value for name, value in vars(obj).items() if issubclass(type(value), torch.Tensor)}
            names = tuple(sorted(kept, key=lambda name: kept[name].grad_fn is not obj))  # its own output closes it
            if names:
                best, function = 0, function_of(kind) or kind
                found.text = f"{function.__name__} ctx.{names[0]} <- {kind.__name__}"
                found.context = (function.__name__, names, place_of_context(function, names[0]))
        elif kind is types.FrameType and best > 1 and is_user_file(obj.f_code.co_filename):
            best = 1
            name = _local_of(obj, numbers)
            code = obj.f_code
            found.place = Place(file=code.co_filename, line=obj.f_lineno, function=code.co_name, holder=name)
            found.text = f"a frame of {code.co_name}() and {f'its local {name}' if name else 'an exception in it'}"
        elif best > 2 and is_user_class(kind) and not issubclass(kind, (torch.Tensor, BaseException)):
            name = _circle_of(obj)
            direct = name is not None and is_user_class(type(vars(obj)[name]))
            if best <= 2.5 and not direct:
                continue
            best = 2 if direct else 2.5  # a child's reference to its parent closes the circle, not the list of children
            name = name or _attribute_of(obj, numbers)
            label = f"{kind.__name__}.{name}" if name else kind.__name__
            place = _place_of_class(kind, kind.__name__, name)
            found.place = Place(
                file=place.file, line=place.line, function=place.function, holder=label, source=place.source
            )
            found.text = f"{label} <- {kind.__name__}"
        elif best > 3 and kind is types.FunctionType and is_user_file(obj.__code__.co_filename):
            best, code = 3, obj.__code__
            found.place = Place(
                file=code.co_filename, line=code.co_firstlineno, function=code.co_name, holder=obj.__qualname__
            )
            found.text = f"the closure {obj.__qualname__}"
    return found


def _local_of(frame: types.FrameType, numbers: set[int]) -> str | None:
    for name, value in read_locals(frame).items():
        if id(value) in numbers:
            return name
    return None


def _circle_of(obj: object) -> str | None:
    """The attribute that leads straight back to its object: itself, a closure over it, its method, its child."""
    attributes = getattr(obj, "__dict__", None)
    if type(attributes) is not dict:
        return None
    for name, value in attributes.items():
        held = _behind(value)
        inside: list[Any] = [inner for one in held for inner in _instance_values(one)]
        held += inside + [one for inner in inside if type(inner) in (list, tuple) for one in inner[:16]]
        if any(one is obj for one in held):
            return str(name)
    return None


def _behind(value: Any, *, deep: bool = True) -> list[Any]:
    """A value and what it stands for: a closure's variables, a method's object, what a short container holds."""
    held = [value]
    if type(value) is types.FunctionType:
        held += [cell.cell_contents for cell in value.__closure__ or () if cell != types.CellType()]
    elif type(value) is types.MethodType:
        held.append(value.__self__)
    elif type(value) is functools.partial:
        held += [inner for part in (value.func, *value.args) for inner in _behind(part, deep=False)]
    elif deep and type(value) in (list, tuple, dict):
        parts = list(value.values() if type(value) is dict else value)[:16]
        held += [inner for part in parts for inner in _behind(part, deep=False)]
    return held[:64]


def _instance_values(obj: object) -> list[object]:
    attributes = getattr(obj, "__dict__", None) if is_user_class(type(obj)) else None
    return list(attributes.values())[:64] if type(attributes) is dict else []


def _attribute_of(obj: object, numbers: set[int]) -> str | None:
    attributes = getattr(obj, "__dict__", None)
    if type(attributes) is not dict:
        return None
    for name, value in attributes.items():
        if id(value) in numbers:
            return str(name)
    return None


def _place_of_class(kind: type, name: str, attribute: str | None) -> Place:
    """The line that sets an attribute within a class, else the class statement's own, in the file of its module."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if file is None:
        return NOWHERE
    lines = linecache.getlines(file)
    for index, text in enumerate(lines):
        if not re.match(rf"\s*class\s+{re.escape(name)}\b", text):
            continue
        if attribute is not None:
            setting = re.compile(rf"\bself\.{re.escape(attribute)}\b[^=]*=[^=]")
            for inner in range(index + 1, len(lines)):
                if re.match(r"\S", lines[inner]) and not lines[inner].startswith(("#", ")", "@")):
                    break
                if setting.search(lines[inner]):
                    return Place(file=file, line=inner + 1, function=name, source=lines[inner].strip())
        return Place(file=file, line=index + 1, function=name, source=text.strip())
    return Place(file=file)
