"""Takes the hooks off a model and its optimizers for a while, within one run, and puts them back."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator

from torch import nn
from torch.optim import optimizer as optimizers


@contextlib.contextmanager
def taken_out(model: nn.Module) -> Iterator[None]:
    """No hook stands on the model or on the optimizers."""
    hooks = [optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks]
    for module in model.modules():
        hooks += [module._forward_pre_hooks, module._forward_hooks]
    away = [(there, dict(there)) for there in hooks]
    for there in hooks:
        there.clear()
    try:
        yield
    finally:
        for there, before in away:
            there.update(before)


def middle(values: list[float]) -> float:
    """The mean without the twentieth at each end, where something else ran on the machine."""
    values = sorted(values)
    cut = len(values) // 20
    return statistics.fmean(values[cut : len(values) - cut])
