"""Models made one after another, as in folds and searches."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import final

from torch import nn

from memguard.evidence.interface import Probe, ProbeContext
from memguard.evidence.minimum_sizes import LEAST, PEAK_SHARE
from memguard.heap.attributes import attributes_of, is_user_class
from memguard.heap.frames import read_locals, user_frames
from memguard.records.facts import Fact, Place, ReboundTensor
from memguard.source.remaking import remade_attribute, remade_variable
from memguard.torch_objects.module_parts import buffers_of, parameters_of
from memguard.torch_objects.storages import storages_of

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

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
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
        made.append((weakref.ref(model), self.watch.batch, weights_bytes(model) if made else 0))
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
        newest = made[-1][0]()
        older = sum(ref() is not None for ref, _, _ in made[:-1])
        found = self._rebound(newest, made[-2][2]) if newest is not None and older < KEPT else None
        if found is not None:
            self._told.add(kind)
            self.report(found)

    def _rebound(self, newest: nn.Module, size: int) -> Fact | None:
        """Whether a name of the newest was that of the one before, which nothing dropped."""
        if size < least_of_series(self.watch):
            return None
        self._tries += 1
        place = _remade(newest)
        if place is None:
            return None
        return ReboundTensor(**self.watch.now, place=place, bytes=size, model=True)


def least_of_series(watch: ProbeContext) -> int:
    """From how many bytes on the models of a series are worth a word."""
    return max(LEAST, int(PEAK_SHARE / 2 * (watch.peak_bytes or 0)))


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
