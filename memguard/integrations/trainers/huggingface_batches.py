"""Batches and evaluations of transformers' Trainer, derived from the model's forwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, final

import torch
from torch import nn

from memguard.evidence.shapes import describe_shapes
from memguard.heap.frames import call_site
from memguard.integrations.loop.hooks import OpenForwards, RootHooks
from memguard.integrations.session import Session
from memguard.integrations.trainers.huggingface_stack import is_predicting, kept_predictions
from memguard.records.facts import KeptOutputs
from memguard.records.stats import Stage

EVALUATIONS = (Stage.VALIDATION, Stage.PREDICT)
_LOOKS = (8, 32, 128, 512, 2048)
"""Batches of an evaluation after which it is asked what it keeps."""
_LARGE_SHARE = 0.02
"""Of the device, held by the predictions of a whole evaluation."""
_KEEP_ELSEWHERE = (
    "set eval_accumulation_steps in TrainingArguments (every so many batches they go to RAM), or reduce them first: "
    "preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1). Each batch is joined to those before, so "
    "for a moment there is twice as much."
)


@final
class TrainerBatches:
    """Listens to the forwards of the Trainer's model until it is removed.

    Args:
        session: Told of the batches.
        roots: The model, and the wrapper that is called in its place where it is compiled.

    Attributes:
        index: Number within its epoch of the next training batch.
    """

    def __init__(self, session: Session, roots: Iterable[nn.Module]) -> None:
        self.index = 0
        self._evaluated = 0
        self._session = session
        self._open = OpenForwards()
        self._hooks: list[RootHooks] = []
        for root in roots:
            self._hooks.append(RootHooks(root, self))
            session.add_model(root)

    def remove(self) -> None:
        """Takes the hooks away; a second call does nothing."""
        hooks, self._hooks = self._hooks, []
        with contextlib.ExitStack() as last:  # even an interrupt in here leaves none behind
            for pair in hooks:
                last.callback(pair.remove)

    def begin(self) -> None:
        """A training batch begins."""
        self._session.batch_start(self.index)
        self.index += 1

    def evaluated(self, batches: int | None, *, keeps: bool) -> None:
        """A batch of an evaluation is over.

        Args:
            batches: Of the whole evaluation, where known.
            keeps: Whether the Trainer keeps predictions on the device to the end.
        """
        session, stage = self._session, self._session.recorder.stage
        session.batch_end()
        if stage not in EVALUATIONS:
            return
        if batches is not None:
            session.recorder.run.batches_per_epoch[stage] = batches
        if keeps and self._evaluated in _LOOKS:
            self._look_at_predictions(batches)

    # Forwards, told by RootHooks

    def forward_start(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The model is called."""
        session = self._session
        if session.is_foreign():
            return
        if self._open.depth and self._open.interrupted(in_hook=True):
            session.validation.interrupted()
        if self._open.enter():
            try:
                if not session.recorder.batch_is_open:
                    self._begin_unannounced(training=model.training and torch.is_grad_enabled())
                session.recorder.shapes_once(describe_shapes, args or kwargs)
            except Exception as error:
                session.recorder.failed("batches", error)
        session.forward_start(model, args, kwargs)

    def forward_end(self, model: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """The model has answered."""
        if self._session.is_foreign():
            return
        self._open.leave()
        self._session.forward_end(model, args, output)

    def hook_failed(self, error: Exception) -> None:
        """A hook of ours raised: all of them fall silent, and gradients are given back."""
        for hooks in self._hooks:
            hooks.stop()
        self._session.validation.release()
        self._session.recorder.failed("module hooks", error)

    # Inside

    def _begin_unannounced(self, *, training: bool) -> None:
        """A forward came without a batch: the next micro-batch of a step, or an evaluation."""
        session = self._session
        if training:
            if session.in_stage(Stage.TRAIN):
                self.begin()
            return
        stage = Stage.PREDICT if is_predicting() else Stage.VALIDATION
        if not session.in_stage(stage):
            self._evaluated = 0 if session.in_stage(Stage.TRAIN) else 1
            session.stage_start(stage, epoch=session.recorder.run.epoch)
        session.batch_start(self._evaluated)
        self._evaluated += 1

    def _look_at_predictions(self, batches: int | None) -> None:
        """Transformers keeps the predictions of a whole evaluation on the device, unless it is told otherwise."""
        recorder, done = self._session.recorder, self._evaluated
        kind = self._session.backend.device.partition(":")[0]
        held = kept_predictions(lambda tensor: kind == "virtual" or tensor.device.type == kind)
        total = recorder.run.device_total_bytes
        if total is None or held * max(batches or done, done) / done < _LARGE_SHARE * total:
            return
        fact = KeptOutputs(
            batch=recorder.batch,
            stage=recorder.stage,
            place=replace(call_site(), holder="Trainer.evaluation_loop"),
            tensors=done,
            first_batch=recorder.batch - done,
            bytes=held,
            bytes_per_batch=held / done,
            batches_left=batches - done if batches is not None else None,
            what="the predictions of {count} batches",
            remedy=_KEEP_ELSEWHERE,
        )
        recorder.learn([fact])
