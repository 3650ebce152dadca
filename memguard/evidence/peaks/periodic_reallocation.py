"""What is made again under a name that still has the old one: large tensors between epochs, models of folds."""

from __future__ import annotations

import statistics
import sys
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, final

import torch
from torch import nn

from memguard.evidence.interface import Probe
from memguard.heap.attributes import attributes_of, file_of, is_tensor, is_user_class
from memguard.heap.frames import is_module_level, read_locals, user_frames
from memguard.records.facts import Place, ReboundTensor
from memguard.records.stats import BatchRecord, Stage
from memguard.source.remaking import remade_attribute, remade_variable
from memguard.thresholds import LEAST_REMARK, much_of, some_of
from memguard.torch_objects.module_parts import buffers_of, parameters_of
from memguard.torch_objects.storages import StorageRef, main_storage, storage_key, storages_of

USUAL, RISE = 15, 1.05
"""Batches whose median peak is the usual one, and how far above it one stands out."""
MIN_RECORDS, ANEW = 4, 8
"""Batches before one can stand out, and after how many the usual peak is worked out anew."""
LOOKS = 8
"""Batches or rows of batches that stand out after which it is looked, in a run."""
TIMES = 2
"""So often a name must have got something new."""
ALIKE = 0.75
"""How near the sizes of the old and the new one are."""
MAX_OBJECTS, MAX_ENTRIES = 64, 32

Where = tuple[str, str, int, str, str]
"""File, function or class, first line of a function, kind of scope, name."""


@final
class RemadeProbe(Probe):
    """Where a batch's peak stands out, compares what the large variables refer to with what they did the last time.

    A variable that is new in every batch is another matter (`memguard.evidence.peaks.rebinds_in_history`): only what
    the next batch still finds in its place counts. So is one of evaluation with peaks all alike, above those of
    training: what it made anew, as features of a whole data set, is there in the training that follows.
    """

    def _prepare(self) -> None:
        self._peaks: deque[int] = deque(maxlen=USUAL)
        self._records = self._looks = 0
        self._bar = float("inf")
        self._stands_out = False
        """Whether the last batch did."""
        self._looked_in = -1
        self._passes = _Passes()
        self._room: int | None = None
        """What the pass of evaluation just before the last look took besides what was there; None where none was."""
        self._fresh: dict[Where, tuple[int, int]] = {}
        """Of the last look: storage and size by name, to be seen again in the next batch."""
        self._lasting: dict[Where, tuple[int, int]] = {}
        self._refs: dict[Where, Any] = {}
        """Whether those storages are there still."""
        self._seen: dict[Where, Any] = {}
        """Of the look just made."""
        self._times: dict[Where, int] = {}
        self.unsubscribe("on_batch_end")

    def on_records(self, records: Sequence[BatchRecord]) -> None:
        """Looks after a batch whose peak stands out: of several in a row, as in evaluation, after the first."""
        begins, room_of_pass = False, None
        for record in records:
            peak = record.allocated_peak_bytes
            if peak is None:
                continue
            if (room := self._passes.room_before(record, peak)) is not None:
                begins, room_of_pass = True, room
            if peak > self._bar or not self._records % ANEW:
                self._bar = self._usual()
            before, self._stands_out = self._stands_out, peak > self._bar
            begins = begins or (self._stands_out and not before)
            self._records += 1
            self._peaks.append(peak)
        if begins or (self._looked_in < 0 and self._records >= MIN_RECORDS):  # what was there before the first of them
            self._looks += begins
            self._room = room_of_pass
            self._looked_in = self.watch.batch
            self._fresh = self._large()
            self.hear("on_batch_end")
            self.watch.look_closely(2, surely=True)  # the next batch still finds it; many batches later it is made anew
            if self._looks == LOOKS:
                self.unsubscribe("on_records")

    def on_batch_end(self) -> None:
        """Keeps what is still in its place, and concludes."""
        if self.watch.batch == self._looked_in:
            return
        fresh, self._fresh = self._fresh, {}
        self.unsubscribe("on_batch_end")
        now = self._large()
        lasting = {where: key for where, key in fresh.items() if now.get(where) == key}
        for where, (storage, size) in lasting.items():
            before = self._lasting.get(where)
            gone = where in self._refs and self._refs[where].expired()  # else it is one of several, taken in turns
            fits = self._room is None or self._room >= ALIKE * size
            is_anew = before is not None and before[0] != storage and ALIKE <= size / max(before[1], 1) <= 1 / ALIKE
            if is_anew and gone and fits:
                self._times[where] = self._times.get(where, 0) + 1
                if self._times[where] == TIMES and (place := _statement(where)) is not None:
                    self.report(ReboundTensor(**self.watch.now, place=place, bytes=size))
        self._lasting.update(lasting)
        self._refs.update((where, self._seen[where]) for where in lasting)
        self._seen = {}

    def _usual(self) -> float:
        """The peak above which a batch stands out."""
        if len(self._peaks) < MIN_RECORDS:
            return float("inf")
        usual = statistics.median(self._peaks)
        return max(RISE * usual, usual + LEAST_REMARK)

    def _large(self) -> dict[Where, tuple[int, int]]:
        least = some_of(max(self._peaks, default=0))
        found: dict[Where, tuple[int, int]] = {}
        whole: dict[Where, bool] = {}
        self._seen = {}
        modules: set[int] = set()
        for frame in user_frames(sys._getframe(1)):
            for where, tensor in _tensors(frame, modules):
                key = storage_key(tensor)
                if key is not None and key[1] >= least and where not in found:
                    found[where] = key
                    self._seen[where] = StorageRef(main_storage(tensor))
                    whole[where] = tensor.numel() * tensor.element_size() >= key[1]
        # A batch that is a slice of all rays gets new memory whenever they do.
        owned = {found[where][0] for where, is_whole in whole.items() if is_whole}
        return {where: key for where, key in found.items() if whole[where] or key[0] not in owned}


@final
class _Passes:
    """Passes of evaluation that reach above the training around them."""

    def __init__(self) -> None:
        self._trained: deque[int] = deque(maxlen=USUAL)
        """Peaks of the last training; the first forward of an evaluation may count as of it."""
        self._evaluated = 0
        """The highest of the evaluation since."""
        self._held = 0
        """The least that was allocated at the end of a batch of that training."""

    def room_before(self, record: BatchRecord, peak: int) -> int | None:
        """Where training begins after such a pass: what that took besides what was there, in bytes; else None."""
        if record.stage.evaluates:
            self._evaluated = max(self._evaluated, peak)
        if record.stage is not Stage.TRAIN:
            return None
        room, held = None, record.allocated_end_bytes or 0
        if self._evaluated:
            if self._evaluated >= RISE * statistics.median(self._trained or (0,)):
                room = self._evaluated - self._held
            self._trained.clear()
            self._evaluated, self._held = 0, held
        self._trained.append(peak)
        self._held = min(self._held, held)
        return room


def _tensors(frame: FrameType, modules: set[int]) -> Iterator[tuple[Where, torch.Tensor]]:
    """Tensors in the variables of a frame and of its module, in attributes of the user's own objects, in containers."""
    code = frame.f_code
    first = 0 if is_module_level(code) else code.co_firstlineno
    scopes = [((code.co_filename, code.co_name, first, "function"), read_locals(frame))]
    if id(frame.f_globals) not in modules and not is_module_level(code):
        scopes.append(((code.co_filename, "<module>", 0, "function"), dict(frame.f_globals)))
    modules.add(id(frame.f_globals))
    for scope, variables in scopes:
        objects: list[tuple[Where, object]] = []
        for name, value in variables.items():
            for inner, tensor in _held(name, value):
                yield (*scope, inner), tensor
            if is_user_class(type(value)):
                objects.append(((*scope, name), value))
        for depth_first in range(MAX_OBJECTS):
            if depth_first >= len(objects):
                break
            owner, value = objects[depth_first]
            kind = type(value)
            parts = dict(attributes_of(value))
            if issubclass(kind, nn.Module):
                parts.update(parts.get("_buffers") or {})
            for attribute, held in parts.items():
                for inner, tensor in _held(attribute, held):
                    yield (file_of(kind) or "", kind.__name__, 0, "class", inner), tensor
                    yield owner, tensor  # a roll-out is made again as a whole
                if is_user_class(type(held)) and len(objects) < MAX_OBJECTS:
                    objects.append(((file_of(kind) or "", kind.__name__, 0, "class", attribute), held))


def _held(name: str, value: object) -> Iterator[tuple[str, torch.Tensor]]:
    """A tensor under a name, or those in a small container under it."""
    if is_tensor(value):
        yield name, value
        return
    if (type(value) is dict or type(value) is list) and len(value) <= MAX_ENTRIES:
        for key, inner in list(value.items() if type(value) is dict else enumerate(value)):
            if is_tensor(inner) and type(key) in (str, int):
                yield f"{name}[{key!r}]", inner


def _statement(where: Where) -> Place | None:
    file, scope, first_line, kind, name = where
    if kind == "class":
        return remade_attribute(file, scope, name)
    return remade_variable(file, scope, first_line, name)


MADE = 3
"""Models of a class, first called some batches apart, from which on they are a series."""
APART = 3
"""Batches that lie between the first calls of two of them."""
KEPT = 3
"""Older ones that are still there, from which on they are kept on purpose or by a cache, not by a name alone."""
TRIES = 3
"""Looks at names for models that are worth it; what is too small so far may become more."""


@final
class ModelSeriesProbe(Probe):
    """Sees models come one after the other under one name that nothing drops before."""

    def _prepare(self) -> None:
        self._made: dict[str, list[tuple[weakref.ref[nn.Module], int, int]]] = {}
        """By class: the models, the batch in which each was first called, and its size, but for the first."""
        self._due: str | None = None
        self._told: set[str] = set()
        self._tries = 0
        self.unsubscribe("on_batch_end")

    def on_model(self, model: nn.Module) -> None:
        """One more of its class."""
        if self.watch.lightning:
            return
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        made = self._made.setdefault(kind, [])
        if made and self.watch.batch - made[-1][1] < APART:
            self._made[kind] = [(weakref.ref(model), self.watch.batch, 0)]
            return
        weights = storages_of([*parameters_of(model), *buffers_of(model)]) if made else {}
        made.append((weakref.ref(model), self.watch.batch, sum(weights.values())))
        if len(made) >= MADE and kind not in self._told and self._tries < TRIES:
            self._due = kind
            self.hear("on_batch_end")

    def on_batch_end(self) -> None:
        """Looks at the series that got one more."""
        self.unsubscribe("on_batch_end")
        kind, self._due = self._due, None
        made = self._made.get(kind or "", [])
        if len(made) < MADE or kind is None:
            return
        (old, _, size), (new, _, _) = made[-2:]
        newest, before = new(), old()
        older = sum(ref() is not None for ref, _, _ in made[:-1])
        if newest is None or older >= KEPT or size < much_of((self.watch.peak_bytes or 0) / 2):
            return
        self._tries += 1
        if (place := _remade(newest, before)) is not None:
            self._told.add(kind)
            self.report(ReboundTensor(**self.watch.now, place=place, bytes=size, model=True))


def _remade(newest: nn.Module, before: nn.Module | None) -> Place | None:
    """The statement in a loop that gives a variable, or an attribute, models: maybe inside an object of the user's.

    While that object is under way, which may train already, the variable has the one before.
    """
    models = (newest,) if before is None else (newest, before)
    for frame in user_frames(sys._getframe(1)):
        code = frame.f_code
        for name, value in read_locals(frame).items():
            has = is_user_class(type(value)) and not issubclass(type(value), nn.Module)
            inner = [key for key, part in attributes_of(value).items() if _is_any(part, models)] if has else []
            place = None
            if inner or _is_any(value, models):
                place = remade_variable(code.co_filename, code.co_name, code.co_firstlineno, name)
            for attribute in inner if place is None else ():
                place = place or remade_attribute(code.co_filename, type(value).__name__, attribute)
            if place is not None:
                return place
    return None


def _is_any(value: object, models: Iterable[nn.Module]) -> bool:
    return any(value is model for model in models)
