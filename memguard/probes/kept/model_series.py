"""Models made one after the other, as in folds and searches: whether the next is made while the last one is there."""

from __future__ import annotations

import re
import sys
import weakref
from collections.abc import Callable
from typing import ClassVar, final

from torch import nn

from memguard.facts import Fact, ModelCopies, Place, ReboundTensor
from memguard.module_parts import buffers_of, parameters_of
from memguard.probes.interface import Probe, Watch
from memguard.probes.naming.holders import Survey
from memguard.probes.objects import attributes_of, is_user_class
from memguard.probes.objects.frames import read_locals, user_frames
from memguard.probes.objects.sizes import storages_of
from memguard.probes.worth import LEAST, PEAK_SHARE
from memguard.source.remaking import remade_attribute, remade_variable

MADE = 3
"""Models of a class, first called some batches apart, from which on they are a series."""
APART = 3
"""Batches that lie between the first calls of two of them."""
KEPT = 3
"""Older ones that are still there, before it is asked who keeps them."""
TRIES = 3
"""Looks at names for models that are worth it; what is too small so far may become more."""
_COLLECTS = re.compile(r"\.(append|appendleft|add|extend|insert|setdefault|update)\(|\]\s*=[^=]|\+=")


@final
class ModelSeriesProbe(Probe):
    """Sees models come one after the other; looks at names for them, and who keeps those that had their time."""

    name: ClassVar[str] = "model series"

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._made: dict[str, list[tuple[weakref.ref[nn.Module], int, int]]] = {}
        """By class: the models, the batch in which each was first called, and its size, but for the first."""
        self._due: str | None = None
        self._told: set[str] = set()
        self._tries = 0
        self.stop_hearing("on_batch_end")

    def on_model(self, model: nn.Module) -> None:
        """One more of its class."""
        if self.watch.lightning:
            return
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        made = self._made.setdefault(kind, [])
        if made and self.watch.batch - made[-1][1] < APART:
            self._made[kind] = [(weakref.ref(model), self.watch.batch, 0)]
            return
        made.append((weakref.ref(model), self.watch.batch, weights_bytes(model) if made else 0))
        if len(made) >= MADE and kind not in self._told and self._tries < TRIES:
            self._due = kind
            self.hear("on_batch_end")

    def on_batch_end(self) -> None:
        """Looks at the series that got one more."""
        self.stop_hearing("on_batch_end")
        kind, self._due = self._due, None
        made = self._made.get(kind or "", [])
        if len(made) < MADE or kind is None:
            return
        there = [(model, size) for ref, _, size in made[:-1] if (model := ref()) is not None]
        older = [(model, size or weights_bytes(model)) for model, size in there]
        newest = made[-1][0]()
        if newest is None:
            return
        if len(older) >= KEPT:
            found = self._kept(older)
        else:
            found = self._rebound(newest, made[-2][2])
        if found is not None:
            self._told.add(kind)
            self.report(found)

    def remove(self) -> None:
        """Forgets all models."""
        self._made.clear()

    def _kept(self, older: list[tuple[nn.Module, int]]) -> Fact | None:
        """Who collects models that had their time, of these sizes."""
        nbytes = sum(size for _, size in older)
        if nbytes < least_of_series(self.watch):
            return None
        self._tries += 1
        survey = Survey(extra=self.watch.roots(), frame=sys._getframe(1))
        numbers = {id(model) for model, _ in older}
        places = [survey.cause(link) for link in survey.walk.links if id(link.value) in numbers][: len(older)]
        collecting = [place for place in places if _COLLECTS.search(place.source or "")]
        if len(collecting) < KEPT:
            return None
        return ModelCopies(
            batch=self.watch.batch,
            stage=self.watch.stage,
            place=collecting[0],
            copies=len(older),
            bytes=nbytes,
            earlier=True,
        )

    def _rebound(self, newest: nn.Module, size: int) -> Fact | None:
        """Whether a name of the newest was that of the one before, which nothing dropped."""
        if size < least_of_series(self.watch):
            return None
        self._tries += 1
        place = _remade(newest)
        if place is None:
            return None
        return ReboundTensor(batch=self.watch.batch, stage=self.watch.stage, place=place, bytes=size, model=True)


def least_of_series(watch: Watch) -> int:
    """From how many bytes on the models of a series are worth a word."""
    record = watch.record
    peak = record.allocated_peak_bytes if record is not None else None
    return max(LEAST, int(PEAK_SHARE / 2 * (peak or 0)))


def _remade(model: nn.Module) -> Place | None:
    """The statement in a loop that gave a variable or an attribute this model."""
    for frame in user_frames(sys._getframe(1)):
        code = frame.f_code
        for name, value in read_locals(frame).items():
            if value is model:
                place = remade_variable(code.co_filename, code.co_name, code.co_firstlineno, name)
                if place is not None:
                    return place
            elif is_user_class(type(value)) and not issubclass(type(value), nn.Module):
                for attribute, inner in list(attributes_of(value).items()):
                    if inner is model:
                        place = remade_attribute(code.co_filename, type(value).__name__, attribute)
                        if place is not None:
                            return place
    return None


def weights_bytes(model: nn.Module) -> int:
    """What a model's parameters and buffers take."""
    return sum(storages_of([*parameters_of(model), *buffers_of(model)]).values())
