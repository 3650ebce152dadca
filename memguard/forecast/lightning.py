"""A LightningModule as model, optimizer and step: its own training step on one batch, as Lightning's loop runs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from memguard.errors import MemGuardError
from memguard.forecast.session import Made


def lightning_made(module: Any, *, batch: Any = None, optimizers: Any = None, precision: str = "32-true") -> Made:
    """Model, optimizer and step of a LightningModule; called inside a trace.

    Args:
        module: The LightningModule, without or with a trainer.
        batch: One batch; by default the first of ``module.train_dataloader()``.
        optimizers: By default what ``configure_optimizers`` returns.
        precision: Of the Trainer; a mixed one runs the training step under autocast.

    Raises:
        MemGuardError: There is no batch to be had.
    """
    if batch is None:
        batch = _first_batch(module)
    module.train()
    module.to("cuda")
    if optimizers is None:
        optimizers = module.configure_optimizers()
    found = list(_optimizers(optimizers))
    for name in ("log", "log_dict", "print"):
        if hasattr(module, name):
            object.__setattr__(module, name, _nothing)
    dtype = torch.bfloat16 if "bf16" in precision else torch.float16
    mixed = "mixed" in precision

    def step() -> None:
        on_gpu = _to_gpu(batch)
        with torch.autocast("cuda", dtype=dtype, enabled=mixed):
            result = module.training_step(on_gpu, 0)
        loss = result.get("loss") if isinstance(result, Mapping) else result
        if not getattr(module, "automatic_optimization", True) or loss is None:
            return
        for optimizer in found:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in found:
            optimizer.step()

    return module, found, step


def _first_batch(module: Any) -> Any:
    try:
        loader = module.train_dataloader()
    except Exception as error:
        raise MemGuardError(f"{type(module).__name__}.train_dataloader() gives no batch: {error}") from None
    for batch in loader:
        return batch
    raise MemGuardError(f"{type(module).__name__}.train_dataloader() is empty")


def _optimizers(given: Any) -> Iterable[Optimizer]:
    """The optimizers in any form that ``configure_optimizers`` may return."""
    if isinstance(given, Optimizer):
        yield given
    elif isinstance(given, Mapping):
        yield from _optimizers(given.get("optimizer"))
    elif isinstance(given, (list, tuple)):
        for item in given:
            yield from _optimizers(item)


def _to_gpu(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to("cuda")
    if isinstance(value, Mapping):
        return type(value)({key: _to_gpu(item) for key, item in value.items()})  # type: ignore[call-arg]
    if isinstance(value, (list, tuple)):
        items = [_to_gpu(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _nothing(*_: Any, **__: Any) -> None:
    """Logging during a trace goes nowhere."""
