"""Plain PyTorch: `wrap` and `unwrap` for a loop that stays as it is, `watch` for one that wants a handle."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterable
from typing import Any, TypeVar, overload

import torch
from torch import nn
from typing_extensions import Unpack

from memguard.errors import MemGuardError
from memguard.integrations.guard import Guard, check_model
from memguard.integrations.session import open_sessions
from memguard.integrations.trainers.answers import Answers
from memguard.options import Options, OptionValues, disabled, lists_options

ModelT = TypeVar("ModelT", bound=nn.Module)

# The guard that `wrap` made and not yet closed; `wrap` sets it, the last `unwrap` (or the process's exit) clears it.
_wrapped: list[Guard] = []


@lists_options
def watch(
    model: nn.Module | Iterable[nn.Module] | None = None,
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
    *,
    writer: Any = None,
    quiet: bool = False,
    **options: Unpack[OptionValues],
) -> Guard:
    """A guard for a plain loop, with a visible handle: ``with memguard.watch(model, optimizer) as guard: ...``.

    Args:
        model: The root model or models, as the loop calls them; None watches the device alone.
        optimizer: The optimizer or optimizers; they are found at their first step anyway.
        writer: The user's own SummaryWriter, so that the curves appear in the user's run.
        quiet: Whether to print no summary at the end.
        **options: See `memguard.options.Options`.

    Raises:
        ValueError, TypeError: An option is not known or not valid.
    """
    if isinstance(optimizer, nn.Module):
        raise TypeError(
            f"watch takes several models as one list, got {type(optimizer).__name__} for the optimizer: watch([a, b])"
        )
    models = [] if model is None else [model] if isinstance(model, nn.Module) else list(model)
    optimizers = _own_optimizers(optimizer)
    return Guard(models, optimizers, Options.make("writer", "quiet", **options), writer=writer, quiet=quiet)


@lists_options
def wrap(model: ModelT, *, writer: Any = None, quiet: bool = False, **options: Unpack[OptionValues]) -> ModelT:
    """Guards a model in a loop that stays as it is; the same object comes back, with hooks attached.

    Several models wrapped in one process share one guard, and its options: a further one joins it without any, or with
    the same. With others it begins a new run where the models before it are gone (or there is just this one), and is
    refused where they are not. The summary is printed when the last model is unwrapped or the process ends.

    Args:
        model: The root model, as the loop calls it (wrap it after torch.compile and DistributedDataParallel, if used).
        writer: The user's own SummaryWriter.
        quiet: Whether to print no summary.
        **options: See `memguard.options.Options`.

    Raises:
        TypeError: Not a torch.nn.Module, or an unknown option.
        ValueError: An option is not valid.
        MemGuardError: Other models are wrapped, with other options.
    """
    check_model(model)
    checked = Options.make("writer", "quiet", **options)
    if disabled():
        return model
    if _wrapped and not _wrapped[0].is_of_this_process:
        _wrapped.clear()  # a forked child: the parent's guard is not ours
    if _wrapped:
        differs = _wrapped[0].differs_in(checked, options, writer=writer, quiet=quiet)
        if differs is None:
            _wrapped[0].add(model)
            return model
        _make_room(_wrapped[0], model, differs)
    guard = Guard([model], [], checked, writer=writer, quiet=quiet)
    guard.__enter__()
    _wrapped.append(guard)
    atexit.register(_program_ends)
    return model


def current() -> Guard | Answers | None:
    """The handle of the run that is open in this process: of `wrap`, `watch`, `MemGuard` or ``memguard run``.

    It has ``records``, ``findings`` and ``summary()``. Of several runs it is the one that was opened last; None where
    none is open.
    """
    for session in reversed(open_sessions()):
        handle = session.handle() if session.handle is not None else None
        if handle is not None:
            return handle
    return None


@overload
def unwrap(model: ModelT) -> ModelT: ...
@overload
def unwrap(model: None = None) -> None: ...
def unwrap(model: ModelT | None = None) -> ModelT | None:
    """Takes memguard's hooks off a model; the last model unwrapped ends the run. Without a model: off all of them.

    Raises:
        MemGuardError: The model is not wrapped.
    """
    if model is None:
        _close_wrapped()
        return None
    for guard in _wrapped:
        if guard.drop(model):
            if not guard.models:
                _close_wrapped()
            return model
    if disabled():
        return model
    raise MemGuardError(f"this {type(model).__name__} is not wrapped by memguard: unwrap takes what wrap was given")


def _own_optimizers(given: Any) -> list[torch.optim.Optimizer]:
    """PyTorch's optimizers in what was given: one, several, or an engine's around one (DeepSpeed's)."""
    inner = given
    while inner is not None and not isinstance(inner, torch.optim.Optimizer) and not isinstance(inner, Iterable):
        inner = getattr(inner, "optimizer", None)
    if inner is None and given is not None and not hasattr(given, "step"):
        raise TypeError(f"watch takes an optimizer or several, got {given!r}")
    if inner is None or isinstance(inner, torch.optim.Optimizer):
        return [inner] if inner is not None else []
    return [each for one in inner for each in _own_optimizers(one)]


def _make_room(guard: Guard, model: nn.Module, differs: str) -> None:
    """Ends the open run where no other model is in it, for one with other options to begin."""
    if any(other is not model for other in guard.models):
        gc.collect()  # one that nobody can reach is gone
    others = [type(other).__name__ for other in guard.models if other is not model]
    if others:
        raise MemGuardError(
            f"{', '.join(others)} is wrapped already, and wrapped models share one run with one set of options; wrap "
            f"was given {differs}. End that run with memguard.unwrap(), or leave the options out to join it"
        )
    _close_wrapped()


def _program_ends() -> None:
    kind = getattr(sys, "last_type", None)  # Python's own note of the exception that ended the program
    _close_wrapped("finished" if kind is None else f"an exception: {kind.__name__}")


def _close_wrapped(reason: str = "finished") -> None:
    while _wrapped:
        _wrapped.pop().close(reason)
    atexit.unregister(_program_ends)
