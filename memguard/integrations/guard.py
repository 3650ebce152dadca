"""The handle of a guarded plain loop."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, TypeVar, final

import torch
from torch import nn

from memguard.errors import MemGuardError
from memguard.integrations.last_word import closing_text
from memguard.integrations.loop.batches import Batches
from memguard.integrations.loop.plain_loop import PlainLoop
from memguard.integrations.never_raises import shielded, take_away
from memguard.integrations.session import UNOPENED, Session
from memguard.integrations.trainers.trackers import Scalars
from memguard.options import Options, disabled, given_logdir
from memguard.records.findings import Finding
from memguard.records.stats import BatchRecord
from memguard.records.summary import Summary
from memguard.report.page import summary_html
from memguard.report.text import render
from memguard.sinks.console import print_text

BatchT = TypeVar("BatchT")


@final
class Guard:
    """The handle of a guarded plain loop; `watch` makes it, use it as a context manager, once.

    Before it is opened, whatever asks it for results raises MemGuardError. A notebook shows it as a table.

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
        self._quiet, self._writer = quiet, writer
        self._pid = os.getpid()
        self._closed = False
        self._removals: list[Callable[[], object]] = []
        self._scalars: Scalars | None = None
        if options.loggers:
            raise ValueError(
                "loggers=True needs the Trainer of Lightning or Hugging Face, which knows your loggers; in a loop of "
                "your own, log what guard.scalars() gives"
            )
        if writer is not None and not all(callable(getattr(writer, name, None)) for name in ("add_scalar", "add_text")):
            raise TypeError(f"writer must be a SummaryWriter (or have its add_scalar and add_text), got {writer!r}")
        if self._disabled:
            return
        self.session = Session(options, writer=(lambda: writer) if writer is not None else None)
        self.session.handle = weakref.ref(self)
        self._unused = weakref.finalize(self, _was_never_opened, quiet)
        self.loop = PlainLoop(self.session)
        for optimizer in optimizers:
            self.session.watch.expect_optimizer(optimizer)
        self._models = list(models)
        for model in self._models:
            check_model(model)

    def __enter__(self) -> Guard:
        if not self._disabled:
            if self.session.has_begun or self._closed:
                raise MemGuardError("a guard is for one run, which this one had; make another: memguard.watch(...)")
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
        return [] if self._disabled else list(self._opened().recorder.records)

    @property
    def findings(self) -> list[Finding]:
        """All findings so far."""
        return [] if self._disabled else list(self._opened().recorder.findings.values())

    @property
    def recording(self) -> str | None:
        """Path of the recording on disk; None where nothing is (or could be) written."""
        return None if self._disabled else self._opened().recorder.summary.recording

    def summary(self) -> str:
        """The run so far in plain words."""
        if self._disabled:
            return "memguard is disabled (MEMGUARD_DISABLE)."
        return render(self.result()) if self.session.has_begun else f"memguard: {UNOPENED}."

    def result(self) -> Summary:
        """The run so far as numbers."""
        return Summary() if self._disabled else self._opened().so_far()

    def _repr_html_(self) -> str:
        """What a notebook shows for a cell that ends with the guard."""
        has_run = not self._disabled and self.session.has_begun
        return summary_html(self.result()) if has_run else f"<p>{self.summary()}</p>"

    def scalars(self) -> dict[str, float]:
        """The highest figures since the last call and the findings so far, for a logger of yours.

        The names are those of the curves in TensorBoard, such as ``memory/allocated_peak_gib``.
        """
        if self._disabled:
            return {}
        if self._scalars is None:
            self._scalars = Scalars(self._opened().recorder)
        return self._scalars.take()

    def batches(self, loader: Iterable[BatchT], *, epoch: int | None = None) -> Batches[BatchT]:
        """The loader's batches, with exact boundaries instead of inferred ones, and progress where a terminal shows it.

        They may be named before the guard is opened; a loop over them before that raises MemGuardError.

        Args:
            loader: Anything that yields batches.
            epoch: Number of the epoch, for the records.
        """
        return Batches(loader, None if self._disabled else self.loop, epoch)

    def add(self, model: nn.Module) -> None:
        """Guards one more root model.

        Raises:
            TypeError: Not a torch.nn.Module.
        """
        check_model(model)
        if not self._disabled:
            self.loop.add(model)

    def drop(self, model: nn.Module) -> bool:
        """Takes the hooks off one model; whether it had any."""
        return not self._disabled and self.loop.drop(model)

    @property
    def models(self) -> list[nn.Module]:
        """The guarded root models that are still alive."""
        return [] if self._disabled else self.loop.models

    @property
    def is_of_this_process(self) -> bool:
        """Whether it was made here; in a forked child it does nothing."""
        return os.getpid() == self._pid

    def differs_in(self, options: Options, given: Iterable[str], *, writer: Any, quiet: bool) -> str | None:
        """What is requested that this guard does not do, in words; None where it does all of it.

        Args:
            options: What is asked for.
            given: The names of those options that were given; the others are not requested.
            writer: As a guard takes it; None where it was not given.
            quiet: As a guard takes it; False where it was not given.
        """
        wishes = [(name, getattr(options, name), getattr(self.session.options, name)) for name in given]
        wishes += [("quiet", quiet, self._quiet)] * quiet
        for name, wish, has in wishes:
            if wish != has and (name != "logdir" or given_logdir(options) != given_logdir(self.session.options)):
                return f"{name}={wish!r} (there it is {has!r})"
        return "another writer" if writer is not None and writer is not self._writer else None

    def close(self, reason: str = "finished") -> Summary:
        """The run is over: hooks are taken away, the recording is closed, the summary printed (to stderr)."""
        if self._disabled or not self.is_of_this_process:
            return Summary() if self._disabled else self.session.so_far()
        was_closed = self._closed
        if not was_closed:
            self._removals = [  # from the bottom up
                functools.partial(self.session.close, reason),
                self.loop.leave_losses,
                self.loop.leave_inner,
                *(functools.partial(self.drop, model) for model in self.models),
                self.loop.end,
            ]
            self._closed = True
        take_away(self._removals)  # even an interrupt in here leaves nothing behind
        summary = self.session.so_far()
        if not (was_closed or self._quiet):
            self._print(summary)
        return summary

    def part_failed(self, name: str, error: Exception) -> None:
        """Something raised where the user calls us."""
        self.session.recorder.failed(name, error)

    # Inside

    def _opened(self) -> Session:
        """The session.

        Raises:
            MemGuardError: The guard was never opened: there is nothing to answer with.
        """
        if not self.loop.was_entered:
            raise MemGuardError(UNOPENED)
        return self.session

    def _open(self) -> None:
        self.loop.was_entered = True
        self._unused.detach()
        try:
            self.session.open()
        except torch.OutOfMemoryError:
            raise  # what is there already does not fit the virtual device: the user's business
        except Exception as error:
            self.part_failed("session", error)
        while self._models:
            self.add(self._models.pop())

    @shielded
    def _fails(self, error: BaseException) -> None:
        self.session.exception(error)

    @shielded
    def _end(self, reason: str) -> None:
        self.close(reason)

    @shielded
    def _print(self, summary: Summary) -> None:
        text = closing_text(self.session.launch, summary) if self.session.has_begun else self.summary()
        if text is not None:
            print_text(text)


def _was_never_opened(quiet: bool) -> None:
    """A guard without its ``with`` guards nothing, and says so when it goes."""
    if not quiet:
        print_text(f"memguard: {UNOPENED}.")


def check_model(model: object) -> None:
    """Whether a model can be guarded.

    Raises:
        TypeError: It is not a torch.nn.Module.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"memguard guards torch.nn.Module objects, got {type(model).__name__}")
