"""What a Lightning Trainer and its module say about themselves, read defensively."""

from __future__ import annotations

import os
import sys
import weakref
from typing import Any, Final, final

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


# Hooks of the callback that have nothing to do are removed from the Trainer's per-batch calls.
# Lightning calls every hook of every callback, also those that do nothing, each inside a span of its profiler; that
# takes more time than what most of ours do in a batch that nobody looks at. A hook that is None is passed over.

_UNUSED: Final = ("on_before_zero_grad", "on_before_optimizer_step")
_PAUSED: Final = ("on_before_backward", "on_after_backward")


@final
class MutedHooks:
    """Hides hooks of one callback from one Trainer, by None in the callback's own attributes.

    A subclass of the user's keeps the hooks that it defines itself.
    """

    def __init__(self, callback: Any, own: type[Any], trainer: Any) -> None:
        self._attributes: dict[str, Any] = vars(callback)
        kind, skips = type(callback), _skips_none(trainer)
        self._paused = [name for name in _PAUSED if skips and getattr(kind, name) is getattr(own, name)]
        self._unused = [name for name in _UNUSED if skips and _is_lightnings(kind, name)]
        self._attributes.update(dict.fromkeys(self._unused))
        self.is_calm = False
        """Whether those around the backward are hidden."""

    def calm(self, now: bool) -> None:
        """A batch begins: the hooks around the backward are hidden in a calm one."""
        if now == self.is_calm:
            return
        self.is_calm = now
        if now:
            self._attributes.update(dict.fromkeys(self._paused))
        else:
            self._show(self._paused)

    def remove(self) -> None:
        """All hooks are there again."""
        self._show([*self._unused, *self._paused])

    def _show(self, names: list[str]) -> None:
        for name in names:
            self._attributes.pop(name, None)


def _skips_none(trainer: Any) -> bool:
    """Whether this Lightning passes over a hook that is not callable; checked in Lightning 2.2 and 2.6."""
    module = sys.modules.get(type(trainer).__module__.rpartition(".")[0] + ".call")
    code = getattr(getattr(module, "_call_callback_hooks", None), "__code__", None)
    return code is not None and "callable" in code.co_names


def _is_lightnings(kind: type[Any], name: str) -> bool:
    """Whether a hook is the one of Lightning's own Callback, which does nothing."""
    owner = next((cls for cls in kind.__mro__ if name in vars(cls)), None)
    return owner is not None and owner.__name__ == "Callback" and owner.__module__.endswith("callbacks.callback")
