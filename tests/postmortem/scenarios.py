"""Eight ways to run out of memory, each with its fault and with the change that memguard should ask for.

Every function trains for a few batches on the device it is given. ``fix`` is None, or what the first advice proposes;
``scale`` multiplies the device's size, where a toy's is too small for what libraries take.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import memguard
from memguard.integrations.guard import Guard

WIDTH = 64
WIDE = 512
Run = Callable[..., None]


def net(depth: int = 100, width: int = WIDTH, device: str = "cpu") -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers).to(device)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> torch.Tensor:
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def size(guard: Guard, device: str, fix: int | None, scale: int = 1) -> None:
    """Too large a batch, from the first one on."""
    model = net(device=device)
    guard.add(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        train(model, optimizer, torch.zeros(fix or 2000 * scale, WIDTH, device=device))


def leak(guard: Guard, device: str, fix: object, scale: int = 1) -> None:
    """Losses kept with their graphs."""
    model = net(depth=10, device=device)
    guard.add(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(40):
        loss = model(torch.zeros(1000 * scale, WIDTH, device=device)).square()
        optimizer.zero_grad()
        loss.mean().backward()
        optimizer.step()
        losses.append(loss.mean().item() if fix else loss)


def long_batch(guard: Guard, device: str, fix: int | None, scale: int = 1) -> None:
    """One batch of sequences many times as long as the others."""
    model = net(device=device)
    guard.add(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for number in range(12):
        length = 130 if number == 11 else 20 + number
        train(model, optimizer, torch.zeros(16 * scale, min(length, fix or length), WIDTH, device=device))


def validation(guard: Guard, device: str, fix: object, scale: int = 1) -> None:
    """Validation without no_grad, with a larger batch than training."""
    model = net(device=device)
    guard.add(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        train(model, optimizer, torch.zeros(300 * scale, WIDTH, device=device))
    model.eval()
    with torch.set_grad_enabled(not fix):
        for _ in range(3):
            model(torch.zeros(2000 * scale, WIDTH, device=device)).sum()


def optimizer_state(guard: Guard, device: str, fix: Any, scale: int = 1) -> None:
    """Weights and gradients fit, what AdamW adds in its first step does not."""
    width = WIDE * math.isqrt(scale)
    model = net(depth=20, width=width, device=device)
    guard.add(model)
    optimizer = (fix or torch.optim.AdamW)(model.parameters())
    for _ in range(3):
        train(model, optimizer, torch.zeros(16, width, device=device))


def several_models(guard: Guard, device: str, fix: object, scale: int = 1) -> None:
    """The models of earlier folds are kept."""
    width = WIDE * math.isqrt(scale)
    folds = []
    for _ in range(5):
        model = net(depth=6, width=width, device=device)
        guard.add(model)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            train(model, optimizer, torch.zeros(64, width, device=device))
        if not fix:
            folds.append((model, optimizer))
        del model, optimizer


def kept_exception(guard: Guard, device: str, fix: object, scale: int = 1) -> None:
    """A smaller batch is tried inside the handler, where the failed call's tensors are still alive."""
    model = net(device=device)
    guard.add(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = 2000 * scale
    if not fix:
        try:
            train(model, optimizer, torch.zeros(batch, WIDTH, device=device))
        except torch.OutOfMemoryError:
            train(model, optimizer, torch.zeros(batch // 3, WIDTH, device=device))
        return
    for _ in range(3):
        failed = False
        try:
            train(model, optimizer, torch.zeros(batch, WIDTH, device=device))
        except torch.OutOfMemoryError:
            failed = True
        if not failed:
            return
        batch //= 3
    raise AssertionError("it never fitted")


def fragmentation(guard: Guard, device: str, fix: object, scale: int = 1) -> None:
    """Each batch is a little longer than the last, and what is kept of it cuts the block that the next one needs."""
    unit = scale << 20
    kept = []
    for number in range(5):
        activations = torch.zeros((40 + 2 * number) * unit, dtype=torch.uint8, device=device)
        del activations
        kept.append(torch.zeros((24 + number) * unit, dtype=torch.uint8, device=device))


CAUSES: dict[str, tuple[Run, str]] = {
    "size": (size, "48MiB"),
    "leak": (leak, "12MiB"),
    "fragmentation": (fragmentation, "200MiB"),
    "long-batch": (long_batch, "48MiB"),
    "validation-graph": (validation, "40MiB"),
    "optimizer-state": (optimizer_state, "64MiB"),
    "several-models": (several_models, "96MiB"),
    "kept-exception": (kept_exception, "48MiB"),
}
"""From the cause's name to the scenario and the size of the device on which it fails."""


def fail(name: str, logdir: str, device: str = "cpu", scale: int = 1, **options: Any) -> dict[str, Any]:
    """Runs a scenario until it fails; the post-mortem.

    Args:
        name: The cause.
        logdir: Where the recording goes.
        device: Where its tensors are; "cpu" is guarded as a virtual GPU of the scenario's size.
        scale: Of the sizes.
        **options: Of memguard.
    """
    guard = _guard(name, logdir, device, **options)
    try:
        with guard:
            CAUSES[name][0](guard, device, None, scale)
    except torch.OutOfMemoryError:
        told = guard.result().oom
        assert told is not None
        return told
    raise AssertionError(f"{name} did not run out of memory")


def pass_with(name: str, fix: Any, logdir: str, device: str = "cpu", scale: int = 1) -> None:
    """Runs a scenario with its fix; it must end."""
    with _guard(name, logdir, device) as guard:
        CAUSES[name][0](guard, device, fix, scale)


def _guard(name: str, logdir: str, device: str, **options: Any) -> Guard:
    guarded = f"virtual:{CAUSES[name][1]}" if device == "cpu" else device
    return memguard.watch(device=guarded, logdir=logdir, quiet=True, validation="warn", **options)


def fix_of(name: str, told: dict[str, Any]) -> Any:
    """What the first advice proposes, as the scenario takes it."""
    first = told["advice"][0]
    if name in ("size", "long-batch"):
        return first["value"]
    if name == "optimizer-state":
        return adafactor() if "Adafactor" in first["text"] else None
    return True


def adafactor() -> Any:
    """The optimizer that is advised, or where this torch has none yet, another one that keeps as little."""
    return getattr(torch.optim, "Adafactor", torch.optim.SGD)
