"""What an optimizer adds in its first step."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch

from memguard.integrations.guard import Guard
from tests.postmortem.unseen.cases import Case, by_optimizer
from tests.postmortem.unseen.nets import mlp


def ema_and_adam(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """Weights, an EMA copy and gradients fit; Adam's two moments no longer."""
    width = 256 * math.isqrt(scale)
    model = mlp(width, 32, device)
    ema = copy.deepcopy(model).requires_grad_(False)
    guard.add(model)
    optimizer = (fix or torch.optim.AdamW)(model.parameters(), lr=1e-3)
    for _ in range(3):
        loss = model(torch.zeros(32, width, device=device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for e, p in zip(ema.parameters(), model.parameters(), strict=True):
                e.lerp_(p, 0.01)


class MasterAdamW(torch.optim.Optimizer):
    """bf16 weights, float32 masters and moments made in the first step."""

    def __init__(self, params, lr=1e-3):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["master"] = p.detach().float()
                    state["m"] = torch.zeros_like(p, dtype=torch.float32)
                    state["v"] = torch.zeros_like(p, dtype=torch.float32)
                g = p.grad.float()
                state["m"].lerp_(g, 0.1)
                state["v"].lerp_(g * g, 0.01)
                state["master"].addcdiv_(state["m"], state["v"].sqrt().add_(1e-8), value=-group["lr"])
                p.copy_(state["master"])


def master_copies(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """Mixed precision with master weights in the optimizer's state: six times the weights, at the first step."""
    width = 256 * math.isqrt(scale)
    model = mlp(width, 48, device, torch.bfloat16)
    guard.add(model)
    optimizer = (fix or MasterAdamW)(model.parameters(), lr=1e-3)
    for _ in range(3):
        loss = model(torch.zeros(32, width, device=device, dtype=torch.bfloat16)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=0.001):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None:
                    continue
                s = self.state[p]
                if not s:
                    s["exp_avg"] = torch.zeros_like(p)
                p.add_(s["exp_avg"].mul(0.9).add_(p.grad).sign_(), alpha=-g["lr"])


def lion(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """An optimizer of the user's own with one moment."""
    w = 256 * math.isqrt(scale)
    model = mlp(w, 40, device)
    guard.add(model)
    opt = (fix or Lion)(model.parameters(), lr=0.001)
    for _ in range(3):
        model(torch.zeros(32, w, device=device)).square().mean().backward()
        opt.step()
        opt.zero_grad()


def unfreeze(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """Layers are unfrozen after some steps, and a new optimizer makes their state."""
    w = 256 * math.isqrt(scale)
    model = mlp(w, 48, device)
    guard.add(model)
    for p in model[: 2 * 40].parameters():
        p.requires_grad_(False)
    cls = fix or torch.optim.AdamW
    opt = cls([p for p in model.parameters() if p.requires_grad], lr=0.001)
    for step in range(8):
        if step == 4:
            for p in model.parameters():
                p.requires_grad_(True)
            opt = cls(model.parameters(), lr=0.001)
        model(torch.zeros(32, w, device=device)).square().mean().backward()
        opt.step()
        opt.zero_grad()


CASES = {
    "ema_and_adam": Case(ema_and_adam, "36MiB", {"optimizer-state"}, by_optimizer),
    "master_copies": Case(master_copies, "48MiB", {"optimizer-state"}, by_optimizer),
    "lion": Case(lion, "28MiB", {"optimizer-state"}, by_optimizer),
    "unfreeze": Case(unfreeze, "32MiB", {"optimizer-state"}, by_optimizer),
}
