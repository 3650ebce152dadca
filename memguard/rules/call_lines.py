"""Lines that call the model: the place of a finding that rests on allocator statistics alone."""

from __future__ import annotations

from typing import final

from memguard.records.facts import NOWHERE, Fact, ModelCalled, Place
from memguard.records.stats import BatchRecord, Stage
from memguard.rules.finding_text import at


@final
class Calls:
    """Remembers the first call of each stage."""

    def __init__(self) -> None:
        self._places: dict[Stage, Place] = {}

    def learn(self, fact: Fact) -> None:
        """Takes note of a call."""
        if isinstance(fact, ModelCalled):
            self._places.setdefault(fact.stage, fact.place)

    def of(self, record: BatchRecord) -> Place:
        """Where the record's stage calls its model; nowhere where that is not known."""
        return self.in_stage(record.stage)

    def in_stage(self, stage: Stage) -> Place:
        """Likewise of a stage."""
        return self._places.get(stage, NOWHERE)

    def text(self, record: BatchRecord) -> str:
        """The same in brackets: `` (the model is called at train.py:33 in main())``; empty where it is not known."""
        place = self.of(record)
        return f" (the model is called at {at(place)})" if place.line is not None else ""
