"""Takes the hooks off a model and its optimizers for a while, within one run, and puts them back."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Iterator

from torch import nn
from torch.optim import optimizer as optimizers

from tests.hooks import hook_dicts_of

_OF_A_MODULE = (
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks",
    "_forward_hooks_always_called",
)


@contextlib.contextmanager
def taken_out(model: nn.Module) -> Iterator[None]:
    """No hook stands on the model or on the optimizers."""
    put_back = take_out(model)
    try:
        yield
    finally:
        put_back()


def take_out(model: nn.Module) -> Callable[[], None]:
    """Takes all hooks off; what puts them back."""
    plain = [optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks]
    plain += [vars(part)[name] for part in model.modules() for name in _OF_A_MODULE]
    before = [(hooks, dict(hooks)) for hooks in plain]
    hidden = [(hooks, hooks.ours) for part in model.modules() for hooks in hook_dicts_of(part)]
    for hooks in plain:
        hooks.clear()
    for there, _ in hidden:
        there.ours = ()

    def put_back() -> None:
        for hooks, ours in before:
            hooks.update(ours)
        for there, pairs in hidden:
            there.ours = pairs

    return put_back


def middle(values: list[float]) -> float:
    """The mean without the twentieth at each end, where something else ran on the machine."""
    values = sorted(values)
    cut = len(values) // 20
    return statistics.fmean(values[cut : len(values) - cut])
