"""Lightning's front door: what `memguard.MemGuard` does in each hook of a Trainer.

Long because a Trainer has two dozen hooks, and each that does something here has its method.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from typing_extensions import Unpack

from memguard.integrations.never_raises import end_here, shielded, take_away
from memguard.integrations.progress import ProgressText
from memguard.integrations.session import Session
from memguard.integrations.trainers.answers import Answers
from memguard.integrations.trainers.module_hooks import ModuleHooks
from memguard.integrations.trainers.trackers import LightningLoggers
from memguard.integrations.trainers.trainer import (
    MutedHooks,
    callable_parts,
    directory_of,
    keeps_runs_apart,
    known_length,
    positive,
    tensorboard_writer,
)
from memguard.options import Options, OptionValues, disabled, given_logdir, lists_options
from memguard.records.stats import Stage

if TYPE_CHECKING:
    from memguard.integrations.forecasting import FirstForecast

_CHECKPOINT = Stage.CHECKPOINT  # an attribute of an enumeration takes a search

_PLACELESS = "nothing is written to disk in a test suite, unless MEMGUARD_LOGDIR says where"


@lists_options
class MemGuardMixin(Answers):
    """Guards a Lightning Trainer: ``Trainer(callbacks=[memguard.MemGuard()])``.

    It records the memory of every batch of fit, validate, test and predict, names what it finds, logs to the Trainer's
    TensorBoard logger, and prints a summary at the end. Lightning turns gradients off in its own evaluation loops; the
    validation guard covers what escapes it.

    Args:
        quiet: Whether to print no summary at the end.
        forecast: Whether to forecast the training step's memory from the first batch, before it is trained on, and to
            put what was measured beside it after three optimizer steps.
        **options: See `memguard.options.Options`.

    Raises:
        ValueError, TypeError: An option is not known or not valid.
    """

    def __init__(self, *, quiet: bool = False, forecast: bool = False, **options: Unpack[OptionValues]) -> None:
        Answers.__init__(self, quiet=quiet)
        self._options = Options.make("quiet", "forecast", **options)
        self._given, self._wants_forecast = options, forecast
        self._discreet = False
        self._place: str | None = None
        """Where the last run of the Trainer went: the next one of this process follows it."""
        self._forecast: FirstForecast | None = None
        self._off = disabled()
        self._hooks: ModuleHooks | None = None
        self._progress: ProgressText | None = None
        self._loggers: LightningLoggers | None = None
        self._hushed: MutedHooks | None = None

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[dict[str, Any], bool]]:
        from memguard.integrations.lightning_class import remake  # which makes the class of this mixin

        options = {**self._given, "quiet": self._quiet, "forecast": self._wants_forecast}
        return remake, (options, self._discreet)

    # Lightning's hooks, in the order of a run

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """A run begins: the session is made, on every rank alike.

        Raises:
            ValueError: The device is not in this build of PyTorch.
        """
        logdir = None if self._discreet else directory_of(trainer)  # a logger fixes its version when it is asked
        first = next((callback for callback in trainer.callbacks if isinstance(callback, MemGuardMixin)), self)
        if self._off or first is not self or self._session is not None:
            return
        placeless = self._discreet and given_logdir(self._options) is None
        own, root = (logdir, "") if logdir is None or keeps_runs_apart(trainer) else (self._place, logdir)
        self._session = Session(
            self._options,
            default_logdir=own,
            root=root,
            writer=None if self._discreet else functools.partial(tensorboard_writer, weakref.ref(trainer)),
            lightning=True,
            rank=trainer.global_rank,
            world_size=trainer.world_size,
            record=not (trainer.fast_dev_run or placeless),
        )
        self._session.handle = weakref.ref(self)
        self._place = self._session.place
        if placeless:
            self._session.recorder.summary.notes.append(_PLACELESS)
        self._open(self._session, trainer)

    @shielded
    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """The model is on its device and wrapped by the strategy."""
        self._attach(trainer, pl_module)

    @shielded
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Validation begins, in fit or alone."""
        self._attach(trainer, pl_module)
        if not trainer.sanity_checking:
            self._enter(Stage.VALIDATION, trainer)

    @shielded
    def on_sanity_check_start(self, trainer: Any, pl_module: Any) -> None:
        """The sanity check begins."""
        self._enter(Stage.SANITY, trainer)

    @shielded
    def on_sanity_check_end(self, trainer: Any, pl_module: Any) -> None:
        """The sanity check is over."""
        self._leave(Stage.SANITY)

    @shielded
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Training begins."""
        self._enter(Stage.TRAIN, trainer, batches=known_length(trainer.num_training_batches))
        if self._session is not None:
            self._session.plan(num_epochs=positive(trainer.max_epochs), max_steps=positive(trainer.max_steps))

    @shielded
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """An epoch begins."""
        self._end_checkpoint()
        if self._hooks is not None:
            self._hooks.epoch_start()
        if self._session is not None:
            self._session.recorder.epoch(trainer.current_epoch)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """A training batch, already on the device, begins."""
        session = self._session
        if session is None:
            return
        if self._wants_forecast:
            self._foresee(session, trainer, pl_module, batch)
        try:
            if session.recorder.stage is _CHECKPOINT:
                session.stage_end(_CHECKPOINT)
            session.batch_start(batch_idx, batch)
            hushed, calm = self._hushed, session.calm.is_on
            if hushed is not None and hushed.is_calm is not calm:
                hushed.calm(calm and not session.probes.hears_backwards)
        except Exception as error:
            end_here(self, "on_train_batch_start", error)

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        """The loss still carries its graph."""
        try:
            if self._session is not None:
                self._session.backward_start(loss)
        except Exception as error:
            end_here(self, "on_before_backward", error)

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        """Gradients are there."""
        try:
            if self._session is not None:
                self._session.backward_end()
        except Exception as error:
            end_here(self, "on_after_backward", error)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """A training batch is over."""
        try:
            if self._session is not None:
                self._session.returned(outputs)
                self._session.batch_end()
                if self._loggers is not None:
                    self._loggers.batch_end(trainer)
                if self._hooks is not None:
                    self._hooks.batch_end()
        except Exception as error:
            end_here(self, "on_train_batch_end", error)

    @shielded
    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """A training epoch is over."""
        if self._session is not None:
            self._session.epoch_end()
        if self._hooks is not None:
            self._hooks.epoch_end()

    @shielded
    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        """A checkpoint is being put together; Lightning does not announce its end, so the next event ends it."""
        if self._session is not None and not self._session.in_stage(Stage.CHECKPOINT):
            self._session.stage_start(Stage.CHECKPOINT, epoch=trainer.current_epoch)

    @shielded
    def on_validation_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """A batch of validation begins, of a test or of a prediction."""
        self._batch_start(batch, batch_idx)

    @shielded
    def on_validation_batch_end(self, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:
        """It is over."""
        if self._session is not None:
            self._session.batch_end()

    on_test_batch_start = on_predict_batch_start = on_validation_batch_start
    on_test_batch_end = on_predict_batch_end = on_validation_batch_end

    @shielded
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Validation is over."""
        self._leave(Stage.VALIDATION)
        self._log(trainer)

    @shielded
    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """A test begins."""
        self._attach(trainer, pl_module)
        self._enter(Stage.TEST, trainer)

    @shielded
    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        """The test is over."""
        self._leave(Stage.TEST)
        self._log(trainer)

    @shielded
    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        """Prediction begins."""
        self._attach(trainer, pl_module)
        self._enter(Stage.PREDICT, trainer)

    @shielded
    def on_predict_end(self, trainer: Any, pl_module: Any) -> None:
        """Prediction is over."""
        self._leave(Stage.PREDICT)
        self._log(trainer)

    @shielded
    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Training is over."""
        self._leave(Stage.TRAIN)
        self._log(trainer, trained=True)

    @shielded
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The run fails; the exception flies on unchanged."""
        if self._session is not None:
            self._session.exception(exception)
            self._log(trainer)
            self._close(f"an exception: {type(exception).__name__}")

    @shielded
    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """The run is over."""
        self._close("finished")

    # Inside

    def _open(self, session: Session, trainer: Any) -> None:
        try:
            session.open()
            # A Trainer that is thrown away without its teardown ends the session too.
            weakref.finalize(trainer, _abandon, weakref.ref(session)).atexit = False
            self._hushed = MutedHooks(self, MemGuardMixin, trainer)
            if self._options.progress:
                self._progress = ProgressText(trainer, session)
            if self._options.loggers and trainer.is_global_zero:
                self._loggers = LightningLoggers(session.recorder)
        except torch.OutOfMemoryError:
            raise  # what is there already does not fit the virtual device: the user's business
        except Exception as error:
            self.part_failed("setup", error)

    def _attach(self, trainer: Any, pl_module: Any) -> None:
        """Hooks the module and its parts, once."""
        if self._session is None or self._hooks is not None:
            return
        with self._session.recorder.part("module hooks"):
            if getattr(pl_module, "_compiler_ctx", None) is not None:  # lightning 2.6: compiled as a whole
                self._session.watch.compiled = True
                return
            self._hooks = ModuleHooks(self._session, self.part_failed)
            self._hooks.attach([pl_module, *callable_parts(pl_module)])
            self._session.extra_roots([("trainer", trainer), ("datamodule", trainer.datamodule)])

    def _foresee(self, session: Session, trainer: Any, pl_module: Any, batch: Any) -> None:
        """Before the first batch its memory is forecast."""
        with session.recorder.part("forecast"):
            if self._forecast is None:
                from memguard.integrations.forecasting import FirstForecast

                self._forecast = FirstForecast(session)
            self._forecast.before_batch(trainer, pl_module, batch)

    @shielded
    def _log(self, trainer: Any, *, trained: bool = False) -> None:
        """A point in the user's loggers, beside those of Lightning's own cadence."""
        if self._loggers is not None and self._session is not None and not trainer.sanity_checking:
            self._loggers.log(trainer, trained=trained)
            if (oom := self._session.recorder.summary.oom) is not None:
                self._loggers.out_of_memory(trainer, str(oom["text"]))

    def _enter(self, stage: Stage, trainer: Any, batches: int | None = None) -> None:
        self._end_checkpoint()
        if self._session is not None:
            self._session.stage_start(stage, epoch=trainer.current_epoch, batches=batches)

    def _leave(self, stage: Stage) -> None:
        self._end_checkpoint()
        if self._session is not None:
            self._session.stage_end(stage)

    def _batch_start(self, batch: Any, index: int) -> None:
        self._end_checkpoint()
        if self._session is not None:
            self._session.batch_start(index, batch)

    def _end_checkpoint(self) -> None:
        session = self._session
        if session is not None and session.in_stage(Stage.CHECKPOINT):
            session.stage_end(Stage.CHECKPOINT)

    def _close(self, reason: str) -> None:
        session, self._session = self._session, None
        parts = [part for part in (self._hooks, self._progress, self._hushed) if part is not None]
        removals: list[Callable[[], object]] = [functools.partial(session.close, reason)] if session is not None else []
        removals += [part.remove for part in parts]
        self._hooks = self._progress = self._loggers = self._hushed = None
        take_away(removals)  # even an interrupt in here leaves nothing behind
        if session is None:
            return
        self._conclude(session)


def _abandon(reference: weakref.ref[Session]) -> None:
    session = reference()
    if session is not None and session.is_open:
        session.close("its Trainer was thrown away")
