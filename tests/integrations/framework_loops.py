"""One small training loop, once with Lightning Fabric and once with Accelerate, each as its documentation writes it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional

from tests.integrations.lightning_modules import loader
from tests.integrations.programs import net


@contextlib.contextmanager
def unguarded(*args: object) -> Iterator[None]:
    yield


def fabric_loop(
    guarding: Any, *, accumulate: int = 1, epochs: int = 2, inner: bool = False, forgets: bool = False,
    kept: list[Any] | None = None, **settings: Any,
) -> tuple[list[float], list[Any]]:  # fmt: skip
    """Losses and final weights as numbers; `inner` guards what Fabric was given instead of what came back."""
    from lightning.fabric import Fabric

    torch.manual_seed(0)
    fabric = Fabric(accelerator="cpu", devices=1, **settings)
    fabric.launch()
    bare = net()
    bare_optimizer = torch.optim.AdamW(bare.parameters(), lr=1e-2)
    model, optimizer = fabric.setup(bare, bare_optimizer)
    train, validation = fabric.setup_dataloaders(loader(40), loader(12))
    losses: list[float] = []
    with guarding(*((bare, bare_optimizer) if inner else (model, optimizer))):
        for _ in range(epochs):
            for number, (x, y) in enumerate(train):
                accumulates = (number + 1) % accumulate != 0
                with fabric.no_backward_sync(model, enabled=accumulates):
                    loss = functional.cross_entropy(model(x), y) / accumulate
                    fabric.backward(loss)
                losses.append(loss.item())
                if kept is not None:
                    kept.append(loss)
                if not accumulates:
                    fabric.clip_gradients(model, optimizer, max_norm=1.0)
                    optimizer.step()
                    optimizer.zero_grad()
            model.eval()
            with contextlib.nullcontext() if forgets else torch.no_grad():
                losses += [functional.cross_entropy(model(x), y).item() for x, y in validation]
            model.train()
    return losses, [parameter.tolist() for parameter in bare.parameters()]


def accelerate_loop(
    guarding: Any, *, accumulate: int = 1, epochs: int = 2, inner: bool = False, forgets: bool = False,
    kept: list[Any] | None = None, **settings: Any,
) -> tuple[list[float], list[Any]]:  # fmt: skip
    """Losses and final weights as numbers; `inner` guards what Accelerate was given instead of what came back."""
    from accelerate import Accelerator

    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulate, **settings)
    bare = net()
    bare_optimizer = torch.optim.AdamW(bare.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.StepLR(bare_optimizer, 5)
    model, optimizer, train, validation, schedule = accelerator.prepare(
        bare, bare_optimizer, loader(40), loader(12), schedule
    )
    losses: list[float] = []
    with guarding(*((bare, bare_optimizer) if inner else (model, optimizer))):
        for _ in range(epochs):
            for x, y in train:
                with accelerator.accumulate(model):
                    loss = functional.cross_entropy(model(x), y)
                    accelerator.backward(loss)
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    schedule.step()
                    optimizer.zero_grad()
                losses.append(loss.item())
                if kept is not None:
                    kept.append(loss)
            model.eval()
            for x, y in validation:
                with contextlib.nullcontext() if forgets else torch.no_grad():
                    scores, truth = accelerator.gather_for_metrics((model(x), y))
                losses.append(functional.cross_entropy(scores, truth).item())
            model.train()
    return losses, [parameter.tolist() for parameter in bare.parameters()]
