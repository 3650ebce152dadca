"""Deep copies of a model that wait for their turn, and are replaced when it comes: one for each client."""

from __future__ import annotations

import re
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, final

from torch import nn

from memguard.facts import Fact, ModelCopies
from memguard.probes.interface import Probe, Watch
from memguard.probes.kept.model_series import least_of_series, weights_bytes
from memguard.probes.naming.holders import Survey

FEW, MANY = 3, 8
"""Models of one class of which it is heard whether they are called again, and so many that wait to be told."""
GONE, GONE_SHARE = 3, 0.5
"""Others of the class that are gone, at least, and for each that is there: nobody needed what they had learned."""
SHARE = 0.75
"""Of those that wait, made by one statement."""
MOST = 128
TRIES = 3
_COPIES = re.compile(r"^[^=]*[^=!<>]=[^=].*\bdeepcopy\(")


@final
class ReplacedModelsProbe(Probe):
    """Counts models that were called in one turn alone, while others of their class were made anew and dropped."""

    name: ClassVar[str] = "replaced models"
    always: ClassVar[frozenset[str]] = frozenset({"on_batch_end"})  # of one batch alone, in which a model is new

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
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
        self.stop_hearing("on_forward_start", "on_batch_end")

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
        self.stop_hearing("on_batch_end")
        kind, self._due = self._due, None
        alive = [model for ref in self._made.get(kind or "", [])[:-1] if (model := ref()) is not None]
        waiting = [model for model in alive if id(model) not in self._again]
        nbytes = sum(map(weights_bytes, waiting))
        if kind is None or len(waiting) < MANY or nbytes < least_of_series(self.watch):
            return
        self._tries += 1
        if self._tries == TRIES:
            self.stop_hearing("on_forward_start")
        self._told[kind] = len(alive)
        survey = Survey(extra=self.watch.roots(), frame=sys._getframe(1))
        numbers = {id(model) for model in waiting}
        placed = {id(link.value): survey.cause(link) for link in survey.walk.links if id(link.value) in numbers}
        copied = Counter(place for place in placed.values() if _COPIES.search(place.source or ""))
        for place, copies in copied.most_common(1):
            if copies < max(SHARE * len(placed), MANY):
                return
            self.report(
                ModelCopies(
                    batch=self.watch.batch,
                    stage=self.watch.stage,
                    place=place,
                    copies=copies,
                    bytes=nbytes * copies // len(waiting),
                    earlier=True,
                    replaced=True,
                )
            )

    def remove(self) -> None:
        """Forgets all models."""
        self._made.clear()
