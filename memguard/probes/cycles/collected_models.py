"""Models made one after the other, as in a search, of which only the cyclic garbage collector frees the old ones."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import ClassVar, final

from torch import nn

from memguard.facts import Fact, FreedByCollector
from memguard.module_parts import buffers_of, parameters_of
from memguard.probes.cycles.collected_graphs import look_at_garbage
from memguard.probes.interface import Probe, Watch
from memguard.probes.objects.sizes import storages_of
from memguard.stats import BatchRecord

MADE, WAITING = 4, 2
"""Models of one class made so far, and older ones of them that are still there, from which on the circle is sought."""
TRIES = 3
MIN_BYTES, PEAK_SHARE = 1024**2, 0.05
"""Of the weights that wait: so many bytes, or so much of a batch's peak if that is less."""


@final
class CollectedModelsProbe(Probe):
    """Counts models of one class; a collection shows which of the old ones nobody holds but they themselves."""

    name: ClassVar[str] = "collected models"

    def __init__(self, watch: Watch, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._made: dict[str, list[weakref.ref[nn.Module]]] = {}
        self._due: str | None = None
        self._tries = 0
        self.stop_hearing("on_batch_end")

    def on_model(self, model: nn.Module) -> None:
        """One more; a collection is due if there are old ones of its class."""
        kind = f"{type(model).__module__}.{type(model).__qualname__}"
        made = self._made.setdefault(kind, [])
        made.append(weakref.ref(model))
        if len(made) >= MADE and self._tries < TRIES and not self.watch.lightning:  # whose trainers are circles
            self._due = kind
            self.hear("on_batch_end")

    def on_batch_end(self) -> None:
        """Collects, and tells of the old models that are gone."""
        self.stop_hearing("on_batch_end")
        kind, self._due = self._due, None
        old = {ref: _size(ref) for ref in self._made.get(kind or "", [])[:-1] if ref() is not None}
        if len(old) < WAITING or sum(old.values()) < _least(self.watch.record):
            return
        self._tries += 1
        found = look_at_garbage()
        gone = [nbytes for ref, nbytes in old.items() if ref() is None]
        named = found is not None and found.place.line is not None and "." in (found.place.holder or "")
        if found is None or not named or len(gone) < WAITING or sum(gone) < _least(self.watch.record):
            return
        self._tries = TRIES
        self.report(
            FreedByCollector(
                batch=self.watch.batch,
                stage=self.watch.stage,
                place=found.place,
                graphs=0,
                models=len(gone),
                bytes=max(sum(gone), found.bytes),
                cycle=found.text,
                parts=found.parts,
                collector_enabled=gc.isenabled(),
            )
        )

    def remove(self) -> None:
        """Forgets all models."""
        self._made.clear()


def _size(ref: weakref.ref[nn.Module]) -> int:
    model = ref()
    return 0 if model is None else sum(storages_of([*parameters_of(model), *buffers_of(model)]).values())


def _least(record: BatchRecord | None) -> int:
    peak = record.allocated_peak_bytes if record is not None else None
    return MIN_BYTES if peak is None else min(MIN_BYTES, int(PEAK_SHARE * peak))
