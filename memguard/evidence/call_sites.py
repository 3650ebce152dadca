"""The line at which each stage calls its models, for rules that have only allocator statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, final

import torch
from torch import nn

from memguard.evidence.interface import Probe, ProbeContext
from memguard.heap.sites import call_site
from memguard.records.facts import Fact, ModelCalled
from memguard.records.stats import Stage


@final
class CalledProbe(Probe):
    """Tells once for each stage where its first forward is called; in training, that of a model which is trained."""

    name: ClassVar[str] = "called"

    def __init__(self, watch: ProbeContext, report: Callable[[Fact], None]) -> None:
        super().__init__(watch, report)
        self._told: set[Stage] = set()

    def on_stage_start(self, stage: Stage) -> None:
        """Listens again in a stage that is new."""
        if stage not in self._told:
            self.hear("on_forward_start")

    def on_forward_start(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Tells, and listens no more."""
        stage = self.watch.stage
        if stage is Stage.TRAIN and not (module.training and torch.is_grad_enabled()):
            return
        self.unsubscribe("on_forward_start")
        place = call_site()
        if stage not in self._told and place.line is not None:
            self._told.add(stage)
            self.report(ModelCalled(batch=self.watch.batch, stage=stage, place=place))
