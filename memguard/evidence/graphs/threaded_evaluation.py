"""Evaluation on other threads that builds graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from memguard.evidence.interface import Probe, ProbeContext
from memguard.evidence.other_threads import EvaluatedElsewhere
from memguard.heap.parameters import is_optimized
from memguard.records.facts import Fact, UnusedGraphs
from memguard.records.stats import Stage

MIN_UNUSED = 3
"""Unused graphs of one model."""


@final
class ThreadedEvaluationProbe(Probe):
    """Tells what `OtherThreads` counted of models that an optimizer trains; others may be frozen ones.

    A copy of the model that is made for a thread is not guarded, and not heard.
    """

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._asked: set[int] = set()
        """Models of which all is known."""

    def on_batch_end(self) -> None:
        """Looks at what died."""
        if self.watch.elsewhere.dead:
            self._look()

    def on_stage_end(self, stage: Stage) -> None:
        """Likewise."""
        self._look()

    def _look(self) -> None:
        for model in self.watch.elsewhere.unused(MIN_UNUSED):
            module = model.ref()
            if module is None or id(model) in self._asked:
                continue
            self._asked.add(id(model))
            if is_optimized([module], self.watch.optimizers) and not self.watch.differentiates(module):
                self._tell(model)

    def _tell(self, model: EvaluatedElsewhere) -> None:
        self.report(
            UnusedGraphs(
                **self.watch.now,
                place=model.place,
                module=model.name,
                count=model.unused,
                forwards=model.forwards,
                bytes=model.bytes,
                elsewhere=True,
            )
        )
