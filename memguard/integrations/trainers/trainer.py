"""What a Lightning Trainer and its module say about themselves, read defensively."""

from __future__ import annotations

import os
import weakref
from typing import Any

from torch import nn

from memguard.text.urls import check_url, is_url
from memguard.torch_objects.module_parts import children_of, parameters_of


def directory_of(trainer: Any) -> str | os.PathLike[str] | None:
    """The Trainer's own directory; every rank asks, once, since Lightning broadcasts it."""
    logdir = trainer.log_dir
    if not isinstance(logdir, (str, os.PathLike)):  # a logger may answer what it likes
        return None
    if is_url(logdir):
        try:
            check_url(os.fspath(logdir))
        except ValueError:  # a place of the logger's own kind
            return None
    return logdir


def keeps_runs_apart(trainer: Any) -> bool:
    """Whether that directory is this run's alone: one that a logger of Lightning's numbered, not one of many runs.

    Without a logger it is ``default_root_dir``, with W&B or MLflow their ``save_dir``.
    """
    kinds = {kind.__name__ for logger in trainer.loggers[:1] for kind in type(logger).__mro__}
    return not kinds.isdisjoint(("TensorBoardLogger", "CSVLogger"))


def tensorboard_writer(reference: weakref.ref[Any]) -> Any:
    """The SummaryWriter of the Trainer's TensorBoardLogger; None without one, or when the Trainer is gone."""
    trainer = reference()
    for logger in trainer.loggers if trainer is not None else ():
        if type(logger).__name__ == "TensorBoardLogger":
            return logger.experiment
    return None


def callable_parts(module: nn.Module) -> list[nn.Module]:
    """The children that can be called: containers of modules stand for what is in them."""
    parts: list[nn.Module] = []
    for child in children_of(module):
        if isinstance(child, (nn.ModuleList, nn.ModuleDict)):
            parts += callable_parts(child)
        elif any(True for _ in parameters_of(child)):
            parts.append(child)
    return parts


def known_length(batches: object) -> int | None:
    """A number of batches, which may also be infinite or a list of numbers: None then."""
    return batches if isinstance(batches, int) else None


def positive(number: object) -> int | None:
    """A limit of epochs or steps; None where there is none, or -1."""
    return number if isinstance(number, int) and number > 0 else None
