"""Models made one after another, as in folds and searches."""

from __future__ import annotations

import re
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, final

from torch import nn

from memguard.evidence.interface import Probe, ProbeContext
from memguard.evidence.minimum_sizes import LEAST, PEAK_SHARE
from memguard.evidence.naming.holders import HolderSearch
from memguard.heap.attributes import attributes_of, is_user_class
from memguard.heap.frames import read_locals, user_frames
from memguard.records.facts import Fact, ModelCopies, Place, ReboundTensor
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


FEW, MANY = 3, 8
"""Models of one class of which it is heard whether they are called again, and so many that wait to be told."""
GONE, GONE_SHARE = 3, 0.5
"""Others of the class that are gone, at least, and for each that is there: nobody needed what they had learned."""
SHARE = 0.75
"""Of those that wait, made by one statement."""
MOST = 128
_COPIES = re.compile(r"^[^=]*[^=!<>]=[^=].*\bdeepcopy\(")


@final
class ReplacedModelsProbe(Probe):
    """Counts models that were called in one turn alone, while others of their class were made anew and dropped."""

    always: ClassVar[frozenset[str]] = frozenset({"on_batch_end"})  # of one batch alone, in which a model is new

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._made: dict[str, list[weakref.ref[nn.Module]]] = {}
        self._gone: Counter[str] = Counter()
        self._told: dict[str, int] = {}
        self._due: str | None = None
        self._tries = 0
        self._called: set[int] = set()
        self._again: set[int] = set()
        """Of models alive, by their ids."""
        self._last = 0
        self.unsubscribe("on_forward_start", "on_batch_end")

    def on_model(self, model: nn.Module) -> None:
        """One more of its class; some may be gone."""
        self._called.discard(id(model))  # which may have been another's
        self._again.discard(id(model))
        if self.watch.lightning or self._tries >= TRIES:
            return
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        made = self._made.get(kind, [])
        alive = [ref for ref in made if ref() is not None]
        self._gone[kind] += len(made) - len(alive)
        self._made[kind] = [*alive, weakref.ref(model)][-MOST:]
        if len(alive) >= FEW:
            self.hear("on_forward_start")
        enough = self._gone[kind] >= max(GONE, GONE_SHARE * len(alive))
        if enough and len(alive) >= max(MANY, 2 * self._told.get(kind, 0)):
            self._due = kind
            self.hear("on_batch_end")

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """One is called; whether another was since it was called last."""
        number = id(module)
        if number != self._last:
            self._last = number
            (self._again if number in self._called else self._called).add(number)

    def on_batch_end(self) -> None:
        """Looks at those of one class."""
        self.unsubscribe("on_batch_end")
        kind, self._due = self._due, None
        alive = [model for ref in self._made.get(kind or "", [])[:-1] if (model := ref()) is not None]
        waiting = [model for model in alive if id(model) not in self._again]
        nbytes = sum(map(weights_bytes, waiting))
        if kind is None or len(waiting) < MANY or nbytes < least_of_series(self.watch):
            return
        self._tries += 1
        if self._tries == TRIES:
            self.unsubscribe("on_forward_start")
        self._told[kind] = len(alive)
        survey = HolderSearch(extra=self.watch.roots(), frame=sys._getframe(1))
        numbers = {id(model) for model in waiting}
        placed = {id(link.value): survey.cause(link) for link in survey.links if id(link.value) in numbers}
        copied = Counter(place for place in placed.values() if _COPIES.search(place.source or ""))
        for place, copies in copied.most_common(1):
            if copies < max(SHARE * len(placed), MANY):
                return
            self.report(
                ModelCopies(
                    **self.watch.now,
                    place=place,
                    copies=copies,
                    bytes=nbytes * copies // len(waiting),
                    earlier=True,
                    replaced=True,
                )
            )
