"""The largest batch that fits, by a search; and a decorator that starts over with a smaller one."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import torch
from torch import distributed

from memguard.errors import MemGuardError
from memguard.evidence.oom.errors import is_oom
from memguard.integrations.session import open_sessions

T = TypeVar("T")
P = ParamSpec("P")
MOST = 2**20


def find_batch_size(
    train_one_step: Callable[[int], object],
    start: int = 64,
    *,
    steps: int = 3,
    margin: float = 0.05,
    minimum: int = 1,
    maximum: int | None = None,
) -> int:
    """The largest batch size with which a training step fits.

    It tries sizes: from `start` it doubles or halves, then narrows down. A size fits if `steps` steps in a row do, for
    the optimizer's state only comes with the first. What a failed step held is released before the next size is tried,
    and each begins with an empty cache. With torch.distributed, a size fits if it fits on every rank, and all get the
    same answer; the step must then not communicate itself (leave the model unwrapped), or a rank that fails would leave
    the others waiting. The steps are real: they change weights and optimizer state.

    Args:
        train_one_step: Does one training step with a batch of the size it is given.
        start: Size to begin with.
        steps: Steps in a row that must fit.
        margin: Share taken off the largest size that fits, for what varies from batch to batch.
        minimum: Smallest size to try.
        maximum: Largest size to try; None is a million.

    Returns:
        The batch size.

    Raises:
        MemGuardError: Not even `minimum` fits.
        ValueError: `start`, `steps`, `margin`, `minimum` or `maximum` is out of range.
        TypeError: `train_one_step` is no function.
    """
    if not callable(train_one_step):
        raise TypeError(
            f"find_batch_size takes a function that does one training step, got {train_one_step!r}; to start a "
            "function over with a smaller batch when memory runs out, decorate it with @memguard.retry_on_oom(start=64)"
        )
    most = MOST if maximum is None else maximum
    _check_range(start, minimum, most)
    if steps < 1 or not 0 <= margin < 1:
        raise ValueError(f"steps must be at least 1 and margin in [0, 1), got {steps} and {margin}")
    fits = functools.partial(_fits_everywhere, train_one_step, steps)
    best = _search(fits, start, minimum, most)
    if best is None:
        raise MemGuardError(
            f"a training step does not fit even with a batch of {minimum}: what does not depend on the batch (weights, "
            "gradients, optimizer state) is too large; see the out-of-memory report"
        )
    chosen = max(int(best * (1 - margin)), minimum)
    while chosen > minimum and chosen != best and not fits(chosen):
        chosen = max(chosen - max(chosen // 10, 1), minimum)
    return chosen


def retry_on_oom(start: int = 64, *, minimum: int = 1) -> Callable[[Callable[Concatenate[int, P], T]], Callable[P, T]]:
    """A decorator: whenever memory runs out, the function is called again with half the batch size.

    The function gets the batch size as its first argument and must be able to start over.

    Args:
        start: Batch size of the first call.
        minimum: Smallest size; an out-of-memory error with it goes through.

    Raises:
        ValueError: Not ``1 <= minimum <= start``.
        TypeError: `start` is no number: the decorator was written without its parentheses.
    """
    if not isinstance(start, int):
        raise TypeError(f"start must be a batch size, got {start!r}; write @memguard.retry_on_oom(start=64)")
    _check_range(start, minimum, MOST)
    return functools.partial(_retrying, start, minimum)


def _check_range(start: int, minimum: int, most: int) -> None:
    if not 1 <= minimum <= start <= most:
        raise ValueError(f"1 <= minimum <= start <= maximum must hold, got {minimum}, {start}, {most}")


def _search(fits: Callable[[int], bool], start: int, minimum: int, most: int) -> int | None:
    """The largest size that fits; None if none does."""
    good, bad, size = None, most + 1, start
    while good is None or (bad > most and good < most):
        if fits(size):
            good = size
            size = min(size * 2, most)
            if bad <= most:
                break
        else:
            bad = size
            if good is not None:
                break
            if size == minimum:
                return None
            size = max(size // 2, minimum)
    assert good is not None
    while bad - good > max(good // 32, 1):
        middle = (good + bad) // 2
        if fits(middle):
            good = middle
        else:
            bad = middle
    return good


def _fits_everywhere(train_one_step: Callable[[int], object], steps: int, size: int) -> bool:
    """Whether several steps fit, here and on the other ranks, beginning with an empty cache."""
    release()
    fitted = all(_runs(train_one_step, size) for _ in range(steps))
    if not fitted:
        release()
    if not (distributed.is_available() and distributed.is_initialized()):
        return fitted
    device = "cuda" if distributed.get_backend() == "nccl" else "cpu"
    failed = torch.tensor([0 if fitted else 1], device=device)
    distributed.all_reduce(failed, op=distributed.ReduceOp.MAX)
    return not bool(failed.item())


def _runs(train_one_step: Callable[[int], object], size: int) -> bool:
    try:
        train_one_step(size)
    except Exception as error:
        if not is_oom(error):
            raise
        return False
    return True


def release() -> None:
    """Lets go of what earlier steps left: cycles, and cached blocks whose sizes the next one cannot use."""
    gc.collect()
    for session in open_sessions():
        session.backend.empty_cache()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _retrying(start: int, minimum: int, function: Callable[Concatenate[int, P], T]) -> Callable[P, T]:
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        size = start
        while size > minimum:
            try:
                return function(size, *args, **kwargs)
            except Exception as error:
                if not is_oom(error):
                    raise
            # Only here, outside of the handler, are the failed call's frames gone, and its tensors with them.
            size = max(size // 2, minimum)
            release()
        return function(size, *args, **kwargs)

    return call
