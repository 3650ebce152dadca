"""The handle of a guarded plain loop: it translates what the loop does to events, and answers what its user asks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, TypeVar, final

import torch
from torch import nn

from memguard.findings import Finding
from memguard.guards.no_grad import tensors_of
from memguard.integrations.batches import Batches
from memguard.integrations.closing import closing_text
from memguard.integrations.compiled import compiled_wrappers
from memguard.integrations.express import Express
from memguard.integrations.hooks import OpenForwards, RootHooks
from memguard.integrations.loop import BatchInference
from memguard.integrations.progress import BatchLine
from memguard.integrations.session import Session
from memguard.integrations.shield import shielded
from memguard.integrations.steps import steps_under_way
from memguard.integrations.trackers import Scalars
from memguard.options import Options, disabled
from memguard.probes.by_identity import WeakIdentityDict
from memguard.probes.hook import Hook
from memguard.probes.shapes import describe_shapes
from memguard.report.text import render
from memguard.sinks.console import print_text
from memguard.stats import BatchRecord, Stage
from memguard.summary import Summary

BatchT = TypeVar("BatchT")


@final
class Guard:
    """The handle of a guarded plain loop; `watch` makes it, use it as a context manager.

    Args:
        models: The root models, as the loop calls them.
        optimizers: The optimizers, where they are known.
        options: The settings.
        writer: The user's TensorBoard writer (SummaryWriter); None lets memguard write its own events.
        quiet: Whether to print no summary at the end.
    """

    def __init__(
        self,
        models: Iterable[nn.Module],
        optimizers: Iterable[torch.optim.Optimizer],
        options: Options,
        *,
        writer: Any = None,
        quiet: bool = False,
    ) -> None:
        self._disabled = disabled()
        self._quiet = quiet
        self._hooks: WeakIdentityDict[nn.Module, RootHooks] = WeakIdentityDict()
        self._forwards_open = OpenForwards()
        self._pid = os.getpid()
        self._forwards = 0
        self._epoch: int | None = None
        self._looked_for_compiled = False
        self._closed = False
        self._scalars: Scalars | None = None
        if options.loggers:
            raise ValueError(
                "loggers=True needs the Trainer of Lightning or Hugging Face, which knows your loggers; in a loop of "
                "your own, log what guard.scalars() gives"
            )
        if self._disabled:
            return
        self.session = Session(options, writer=(lambda: writer) if writer is not None else None)
        self._loop = BatchInference(self, steps_under_way)
        self._hear_backward = Hook(self._loop.backward, self.hook_failed)
        self.session.on_step = (self._step_start, self._loop.step_end)
        self._express = self.session.express = Express(self.session, self._loop, self._forwards_open)
        for optimizer in optimizers:
            self.session.watch.add_optimizer(optimizer)
        self._models = list(models)
        for model in self._models:
            check_model(model)

    def __enter__(self) -> Guard:
        if not self._disabled:
            self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if error is not None and not self._disabled:
            self._fails(error)
        self._end("finished" if kind is None else f"an exception: {kind.__name__}")

    # What the user asks

    @property
    def records(self) -> list[BatchRecord]:
        """The newest records (at most 4096), oldest first."""
        return [] if self._disabled else list(self.session.recorder.records)

    @property
    def findings(self) -> list[Finding]:
        """All findings so far."""
        return [] if self._disabled else list(self.session.recorder.findings.values())

    @property
    def recording(self) -> str | None:
        """Path of the recording on disk; None where nothing is (or could be) written."""
        return None if self._disabled else self.session.recorder.summary.recording

    def summary(self) -> str:
        """The run so far in plain words."""
        return "memguard is disabled (MEMGUARD_DISABLE)." if self._disabled else render(self.result())

    def result(self) -> Summary:
        """The run so far as numbers."""
        return Summary() if self._disabled else self.session.so_far()

    def scalars(self) -> dict[str, float]:
        """The highest figures since the last call and the findings so far, for a logger of yours.

        The names are those of the curves in TensorBoard, such as ``memory/allocated_peak_gib``.
        """
        if self._disabled:
            return {}
        if self._scalars is None:
            self._scalars = Scalars(self.session.recorder)
        return self._scalars.take()

    def batches(self, loader: Iterable[BatchT], *, epoch: int | None = None) -> Batches[BatchT]:
        """The loader's batches, with exact boundaries instead of inferred ones, and progress where a terminal shows it.

        Args:
            loader: Anything that yields batches.
            epoch: Number of the epoch, for the records.
        """
        return Batches(loader, None if self._disabled else self, epoch)

    def add(self, model: nn.Module) -> None:
        """Guards one more root model.

        Raises:
            TypeError: Not a torch.nn.Module.
        """
        check_model(model)
        if not self._disabled and model not in self._hooks:
            self._attach(model)

    def drop(self, model: nn.Module) -> bool:
        """Takes the hooks off one model; whether it had any."""
        hooks = self._hooks.pop(model) if not self._disabled else None
        if hooks is not None:
            self._express.stop()
            hooks.remove()
        return hooks is not None

    @property
    def models(self) -> list[nn.Module]:
        """The guarded root models that are still alive."""
        return self._hooks.keys()

    @property
    def is_in_forward(self) -> bool:
        """Whether a guarded model is being called right now, as far as its hooks know."""
        return self._forwards_open.depth > 0 or (not self._disabled and self._express.is_inside)

    @property
    def is_of_this_process(self) -> bool:
        """Whether it was made here; in a forked child it does nothing."""
        return os.getpid() == self._pid

    def close(self, reason: str = "finished") -> Summary:
        """The run is over: hooks are taken away, the recording is closed, the summary printed (to stderr)."""
        if self._disabled or self._closed or not self.is_of_this_process:
            return self.result()
        self._closed = True
        with contextlib.ExitStack() as last:  # even an interrupt in here leaves nothing behind
            last.callback(self.session.close, reason)
            for model in self.models:
                last.callback(self.drop, model)
            self._leave_stages()
        summary = self.session.recorder.summary
        if not self._quiet:
            self._print(summary)
        return summary

    # Forwards, told by RootHooks

    def forward_start(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A root model is called."""
        express, session = self._express, self.session
        try:
            if express.forward(model, args, kwargs):
                return
        except Exception as error:
            express.give_up()
            session.recorder.failed("short way", error)
        if session.is_foreign():
            return
        if express.is_open:
            express.leave(in_hook=True)
        if self._forwards_open.depth:
            self._look_for_interrupt(in_hook=True)
        self._forwards += 1
        if self._forwards_open.enter():
            recorder = session.recorder
            try:
                was_open = recorder.batch_is_open
                self._loop.forward(id(model), training=model.training and torch.is_grad_enabled())
                if not was_open or not self._loop.explicit:
                    recorder.shapes_once(lambda: describe_shapes(args or kwargs))
            except Exception as error:
                recorder.failed("batch inference", error)
        if session.calm.passes(model):
            express.passed_over(model)
        else:
            session.forward_start(model, args, kwargs)

    def forward_end(self, model: nn.Module, args: tuple[Any, ...], output: object) -> None:
        """A root model has answered."""
        if self._express.forward_end(output) or self.session.is_foreign():
            return
        outermost = self._forwards_open.leave()
        if not self.session.calm.passed(model, output):
            self.session.forward_end(model, args, output)
        if outermost and output is not None and self._loop.needs_backward:
            try:
                if model.training:
                    self._listen_for_backward(output)
            except Exception as error:
                self.session.recorder.failed("batch inference", error)

    def hook_failed(self, error: Exception) -> None:
        """A hook of ours raised: all of them fall silent, and gradients are given back."""
        for hooks in self._hooks.values():
            hooks.stop()
        self.session.validation.release()
        self.part_failed("module hooks", error)

    def part_failed(self, name: str, error: Exception) -> None:
        """Something raised where the loop calls us."""
        self.session.recorder.failed(name, error)

    def bare_backward(self, losses: Sequence[torch.Tensor]) -> None:
        """A backward begins in a program of which no module was seen yet."""
        if not self.session.is_foreign():
            self._loop.bare_backward()
            for loss in losses:
                self.session.backward_start(loss)

    # Batches, told by BatchInference

    def enter(self, stage: Stage) -> None:
        """The loop goes into a stage; evaluation lies inside training."""
        if stage is Stage.TRAIN:
            self.session.stage_end(Stage.VALIDATION)
        if not self.session.in_stage(stage):
            self.session.stage_start(stage, epoch=self._epoch)

    def begin(self, index: int | None) -> None:
        """A batch begins."""
        self.session.batch_start(index)

    def finish(self) -> None:
        """The open batch is over."""
        self.session.batch_end()
        self._express.may_follow()

    def crowded(self) -> None:
        """The open batch had several forwards without a backward: an evaluation that forgot eval() looks like that."""
        self.session.disturb()
        self.session.probes.look_now()

    @shielded
    def start_batches(self, epoch: int | None) -> None:
        """A `batches` loop begins."""
        self._leave_express()
        self._loop.end()
        self._epoch = epoch
        self.session.recorder.epoch(epoch)
        self._loop.explicit += 1

    @shielded
    def next_batch(self, index: int, batch: object) -> None:
        """A `batches` loop hands out a batch."""
        if self._forwards_open.depth:
            self._look_for_interrupt(in_hook=False)
        models = self.models
        training = any(model.training for model in models) and torch.is_grad_enabled() if models else None
        self._loop.hand_out(index, training=training)
        self.session.recorder.shapes_once(lambda: describe_shapes(batch))

    @shielded
    def end_batches(self) -> None:
        """A `batches` loop is over."""
        self._loop.end()
        self._loop.explicit -= 1
        self._epoch = None

    @shielded
    def show(self, line: BatchLine, index: int | None) -> None:
        """A `batches` loop shows where it is; None is its end."""
        if index is None:
            line.end()
        else:
            line.show(index)

    def _leave_express(self) -> None:
        if self._express.is_open:
            self._express.leave(in_hook=False)

    def _listen_for_backward(self, output: object) -> None:
        for tensor in (output,) if isinstance(output, torch.Tensor) else tensors_of(output):
            if tensor.grad_fn is not None:
                tensor.grad_fn.register_prehook(self._hear_backward)

    # Inside

    def _open(self) -> None:
        try:
            self.session.open()
        except torch.OutOfMemoryError:
            raise  # what is there already does not fit the virtual device: the user's business
        except Exception as error:
            self.part_failed("session", error)
        while self._models:
            self.add(self._models.pop())

    @shielded
    def _attach(self, model: nn.Module) -> None:
        self._express.stop()
        self._hooks[model] = RootHooks(model, self)
        self.session.add_model(model)

    @shielded
    def _fails(self, error: BaseException) -> None:
        self.session.exception(error)

    @shielded
    def _end(self, reason: str) -> None:
        self.close(reason)

    @shielded
    def _leave_stages(self) -> None:
        self._leave_express()
        self._loop.end()
        for stage in (Stage.VALIDATION, Stage.TRAIN):
            self.session.stage_end(stage)

    @shielded
    def _print(self, summary: Summary) -> None:
        text = closing_text(self.session.launch, summary)
        if text is not None:
            print_text(text)

    def _look_for_interrupt(self, *, in_hook: bool) -> None:
        if self._forwards_open.interrupted(in_hook=in_hook):
            self.session.validation.interrupted()

    def _step_start(self) -> None:
        self._loop.step_start()
        if not self._forwards and not self._looked_for_compiled:
            self._looked_for_compiled = True
            self._hook_compiled()

    def _hook_compiled(self) -> None:
        """Hooks torch.compile's wrappers of the guarded models: inside them hooks do not run."""
        for model in self.models:
            for wrapper in compiled_wrappers(model):
                self.add(wrapper)


def check_model(model: object) -> None:
    """Whether a model can be guarded.

    Raises:
        TypeError: It is not a torch.nn.Module.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"memguard guards torch.nn.Module objects, got {type(model).__name__}")
