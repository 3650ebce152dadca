"""Hugging Face: `MemGuardCallback` for transformers' Trainer."""

from __future__ import annotations

import atexit
import contextlib
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from typing_extensions import Unpack

from memguard.evidence.graphs.graph_marks import is_compiled
from memguard.integrations.loop.batches import length_of
from memguard.integrations.never_raises import shielded
from memguard.integrations.session import Session
from memguard.integrations.trainers.answers import Answers
from memguard.integrations.trainers.huggingface_batches import EVALUATIONS, TrainerBatches
from memguard.integrations.trainers.huggingface_stack import Host, find_host
from memguard.integrations.trainers.trackers import Scalars
from memguard.options import Options, OptionValues, disabled, lists_options
from memguard.records.stats import Stage

try:
    from transformers.trainer_callback import TrainerCallback
except ImportError:
    raise ImportError(
        "memguard.integrations.huggingface needs transformers: pip install 'torch-memguard[huggingface]'"
    ) from None


# Callbacks whose run is open; each adds itself when it begins, and takes itself away when it ends.
_running: list[MemGuardCallback] = []


@lists_options
class MemGuardCallback(Answers, TrainerCallback):  # type: ignore[misc]
    """Guards a Trainer of transformers: ``Trainer(..., callbacks=[MemGuardCallback()])``.

    It records the memory of every (micro-)batch of training, evaluation and prediction and of every checkpoint, names
    what it finds, and prints a summary at the end. It gets each event before the callbacks that report. An evaluation
    outside of `train` is recorded from its second batch on: transformers does not announce its beginning.

    Args:
        quiet: Whether to print no summary at the end.
        **options: See `memguard.options.Options`.

    Raises:
        ValueError, TypeError: An option is not known or not valid.
    """

    def __init__(self, *, quiet: bool = False, **options: Unpack[OptionValues]) -> None:
        Answers.__init__(self, quiet=quiet)
        self._options = Options.make("quiet", **options)
        self._given = options
        self._off = disabled()
        self._host: Host | None = None
        self._batches: TrainerBatches | None = None
        self._scalars: Scalars | None = None
        self._logged: tuple[dict[str, Any], dict[str, float]] | None = None

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[dict[str, Any]]]:
        return _remake, ({**self._given, "quiet": self._quiet},)

    # The Trainer's events, in the order of a run

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, train_dataloader: Any = None, **kwargs: Any
    ) -> None:
        """Training begins, or begins anew with a smaller batch (``auto_find_batch_size``).

        Raises:
            ValueError: The device is not in this build of PyTorch.
        """
        self._begin(args, model)
        self._start_training(args, state, train_dataloader)

    @shielded
    def on_epoch_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **kwargs: Any) -> None:
        """An epoch begins; a resumed one in its middle."""
        if self._session is not None and self._batches is not None:
            epoch = int((state.epoch or 0) + 1e-6)
            self._batches.index = round(((state.epoch or 0) - epoch) * (length_of(train_dataloader) or 0))
            self._session.recorder.epoch(epoch)

    @shielded
    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The first micro-batch of an optimizer step begins."""
        if self._batches is not None:
            self._leave(*EVALUATIONS, Stage.CHECKPOINT)
            self._batches.begin()

    @shielded
    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A micro-batch is over; the next one begins with its forward."""
        if self._session is not None:
            self._session.batch_end()

    @shielded
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The last micro-batch and the optimizer's step are over."""
        if self._session is not None:
            self._session.batch_end()
            self._expect_checkpoint(state, control)

    @shielded
    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An epoch is over."""
        if self._session is not None:
            self._leave(Stage.CHECKPOINT)
            self._session.epoch_end()
            self._expect_checkpoint(state, control)

    def on_prediction_step(
        self, args: Any, state: Any, control: Any, model: Any = None, eval_dataloader: Any = None, **kwargs: Any
    ) -> None:
        """A batch of an evaluation is over; outside of `train` this is its first event."""
        if self._session is None:
            self._begin(args, model)
        else:
            self._evaluated(args, eval_dataloader)

    @shielded
    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An evaluation is over."""
        self._end_evaluation(state, control)

    @shielded
    def on_predict(self, args: Any, state: Any, control: Any, *positional: Any, **kwargs: Any) -> None:
        """A prediction is over."""
        self._end_evaluation(state, control)

    @shielded
    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A checkpoint was written."""
        if self._session is not None:
            if not self._session.in_stage(Stage.CHECKPOINT):
                self._session.stage_start(Stage.CHECKPOINT, epoch=int(state.epoch or 0))
            self._leave(Stage.CHECKPOINT)

    @shielded
    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """The Trainer is about to log; with ``loggers=True`` our few numbers go among its own."""
        if self._scalars is not None and logs is not None and state.is_world_process_zero:
            self._unlog()
            scalars = {name: value for name, value in self._scalars.take().items() if name not in logs}
            logs.update(scalars)
            self._logged = logs, scalars

    @shielded
    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Training is over."""
        self._unlog()
        self._leave(*EVALUATIONS, Stage.CHECKPOINT, Stage.TRAIN)
        self._close("finished")

    # The run

    def _begin(self, args: Any, model: Any) -> None:
        if self._off or not self._takes_part():
            return
        if self._session is not None:  # the Trainer begins anew after an error that somebody caught
            self._leave(*EVALUATIONS, Stage.CHECKPOINT, Stage.TRAIN)
        else:
            self._open(args)
        self._attach(model)

    def _open(self, args: Any) -> None:
        try:
            session = Session(
                self._options,
                default_logdir=args.output_dir,
                writer=self._tensorboard_writer,
                rank=args.process_index,
                world_size=args.world_size,
            )
            session.handle = weakref.ref(self)
            session.open()
        except (ValueError, torch.OutOfMemoryError):
            raise  # no such device, or what is there already does not fit the virtual one: the user's business
        except Exception as error:
            self.part_failed("start", error)
            return
        self._session = session
        _running.append(self)
        atexit.register(self._end_with_process)
        with session.recorder.part("loggers"):
            self._scalars = Scalars(session.recorder) if self._options.loggers else None

    @shielded
    def _takes_part(self) -> bool:
        self._host = self._find_host()
        _close_abandoned()
        return self._host is None or self._host.puts_first(self, MemGuardCallback)

    @shielded
    def _find_host(self) -> Host | None:
        return find_host()

    def _tensorboard_writer(self) -> Any:
        return self._host.tensorboard_writer if self._host is not None else None

    @shielded
    def _attach(self, model: Any) -> None:
        session, host = self._session, self._host
        if self._batches is not None:
            self._batches.remove()
        if session is None or model is None:
            return
        wrapped = host.wrapped_model if host is not None else None
        roots = [model] if wrapped is None or not is_compiled(wrapped) else [model, wrapped]
        self._batches = TrainerBatches(session, roots)
        if host is not None:
            if (trainer := host.trainer() if host.trainer is not None else None) is not None:
                session.phase_methods.recognize(trainer)
            named = [(type(callback).__name__, callback) for callback in host.callbacks if callback is not self]
            session.extra_roots([("trainer", trainer), *named])

    @shielded
    def _evaluated(self, args: Any, dataloader: Any) -> None:
        if self._batches is not None:
            self._batches.evaluated(length_of(dataloader), keeps=args.eval_accumulation_steps is None)

    @shielded
    def _start_training(self, args: Any, state: Any, train_dataloader: Any) -> None:
        if self._session is not None:
            self._session.stage_start(Stage.TRAIN, epoch=int(state.epoch or 0), batches=length_of(train_dataloader))
            to_come = (state.max_steps - state.global_step) * args.gradient_accumulation_steps
            self._session.plan(num_epochs=state.num_train_epochs or None, max_steps=to_come or None)

    @shielded
    def _unlog(self) -> None:
        """Takes our numbers out again: what was logged may be the metrics that the Trainer gives to its caller."""
        logs, scalars = self._logged or ({}, {})
        self._logged = None
        for name in scalars:
            logs.pop(name, None)

    def _end_evaluation(self, state: Any, control: Any) -> None:
        self._unlog()
        self._leave(*EVALUATIONS)
        if self._session is None:
            return
        if not self._session.in_stage(Stage.TRAIN):
            self._close("finished")
        elif self._host is None or not self._host.evaluates_several:  # else another one may follow, not a checkpoint
            self._expect_checkpoint(state, control)

    def _expect_checkpoint(self, state: Any, control: Any) -> None:
        """The Trainer announces the end of a checkpoint only, but whether one is to follow."""
        if self._session is not None and control.should_save and not control.should_evaluate:
            self._session.stage_start(Stage.CHECKPOINT, epoch=int(state.epoch or 0))

    @shielded
    def _leave(self, *stages: Stage) -> None:
        for stage in stages:
            if self._session is not None and self._session.in_stage(stage):
                self._session.stage_end(stage)

    def _end_with_process(self) -> None:
        """The process ends, and no event said that the run is over."""
        if self._session is not None and self._session.is_open:
            error = getattr(sys, "last_value", None)
            self._close(f"an exception: {type(error).__name__}" if error is not None else "left in the middle")

    def _close(self, reason: str) -> None:
        session, self._session = self._session, None
        atexit.unregister(self._end_with_process)
        _running[:] = [callback for callback in _running if callback is not self]
        with contextlib.ExitStack() as last:
            if session is not None:
                last.callback(session.close, reason)
            if self._batches is not None:
                last.callback(self._batches.remove)
            self._batches = self._host = self._scalars = None
        if session is None:
            return
        self._conclude(session)


def _close_abandoned() -> None:
    """Ends the runs of Trainers that an exception left: they tell no callback."""
    for callback in _running.copy():
        if callback._host is not None and not callback._host.is_running:
            callback._close("an exception that the program caught")


def _remake(options: dict[str, Any]) -> MemGuardCallback:
    return MemGuardCallback(**options)
