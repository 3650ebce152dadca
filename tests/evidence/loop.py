"""A tiny integration for tests: hooks models, and delivers to probes the events that a loop makes."""

from __future__ import annotations

import itertools
import linecache
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from memguard.evidence.dispatcher import ProbeDispatcher
from memguard.evidence.graphs.graph_marks import MarksProbe, StemProbe
from memguard.evidence.interface import Probe, ProbeContext
from memguard.records.facts import Fact
from memguard.records.stats import BatchRecord, Stage

sees_saved_tensors = pytest.mark.skipif(
    not hasattr(torch._C._autograd.SavedTensor, "data"), reason="this torch does not show what a graph saved"
)
"""Torch 2.4 does not: the bytes of graphs are unknown there, and saved tensors are not told."""


class Loop:
    """Use as a context; `batches(n)` brackets each pass of a loop as one batch; `facts` is what was seen."""

    def __init__(self, *models: nn.Module, kinds: Sequence[type[Probe]], **watch: Any) -> None:
        self.models = models
        self.facts: list[Fact] = []
        self.watch = ProbeContext(**watch)
        self.probes = ProbeDispatcher(self.watch, (MarksProbe, StemProbe, *kinds))
        self.batch = 0
        self.record: BatchRecord | None = None
        self.watch.find_record = lambda: self.record
        self._handles: list[Any] = []

    def __enter__(self) -> Loop:
        self.probes.install()
        for model in self.models:
            self.add(model)
        self._handles += [
            register_optimizer_step_pre_hook(self._step_start),
            register_optimizer_step_post_hook(lambda optimizer, a, k: self.probes.optimizer_step_end(optimizer)),
        ]
        return self

    def __exit__(self, *error: object) -> None:
        for handle in self._handles:
            handle.remove()
        self.probes.remove()
        assert not self.probes.failed

    def add(self, model: nn.Module) -> None:
        """Watches one more root."""
        self.probes.add_model(model)
        self._handles += [
            model.register_forward_pre_hook(self.probes.forward_start, with_kwargs=True),
            model.register_forward_hook(self.probes.forward_end, always_call=True),
        ]

    def _step_start(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.probes.optimizer_step_start(optimizer)

    def batches(self, count: int, stage: Stage = Stage.TRAIN) -> Iterator[int]:
        """Numbers from 0; each pass of the for loop is one batch of the stage."""
        self.probes.stage_start(stage)
        for index in itertools.count():
            if index:
                if self.record is not None:
                    self.probes.records([self.record])
                self.probes.batch_end()
                self.batch += 1
                self.facts += self.probes.take()
            if index == count:
                break
            self.probes.batch_start(batch=self.batch, stage=stage)
            yield index
        self.probes.stage_end(stage)
        self.facts += self.probes.take()

    def of(self, kind: type[Fact]) -> list[Any]:
        """The facts of one kind."""
        return [fact for fact in self.facts if type(fact) is kind]


def train_on(optimizer: torch.optim.Optimizer, loss: torch.Tensor, **backward: bool) -> None:
    """One step on a loss."""
    optimizer.zero_grad()
    loss.backward(**backward)
    optimizer.step()


def record_of(batch: int = 0, stage: Stage = Stage.TRAIN, **numbers: Any) -> BatchRecord:
    """A batch's record, of training if nothing else is said."""
    return BatchRecord(batch=batch, stage=stage, time=0.0, seconds=0.0, **numbers)


def line_of(marker: str) -> int:
    """The line of the test's file that ends with a comment."""
    lines = linecache.getlines(sys._getframe(1).f_code.co_filename)
    return next(number for number, text in enumerate(lines, 1) if text.rstrip().endswith(f"# {marker}"))


def statement_of(fact: Fact) -> str:
    """The text of the line that a fact names."""
    return linecache.getline(str(fact.place.file), fact.place.line or 0)
