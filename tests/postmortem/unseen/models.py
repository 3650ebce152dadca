"""Several models on one device."""

from __future__ import annotations

import copy
import math
from typing import Any

import torch

from memguard.integrations.guard import Guard
from tests.postmortem.unseen.cases import Case, in_words
from tests.postmortem.unseen.nets import mlp


def preference(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """Policy, reference, reward and value model on one device: only the policy learns."""
    width = 256 * math.isqrt(scale)
    policy = mlp(width, 16, device)
    home = "cpu" if fix else device
    frozen = {}
    for name in ("reference", "reward", "value", "teacher"):
        frozen[name] = mlp(width, 32, home).eval().requires_grad_(False)
        if fix and device == "cpu":  # A virtual GPU has no host beside it.
            frozen[name].to(torch.bfloat16)
    guard.add(policy)
    optimizer = torch.optim.AdamW(policy.parameters())
    for _ in range(3):
        x = torch.zeros(64, width, device=device)
        with torch.no_grad():
            target = sum(m(x.to(home, next(m.parameters()).dtype)).to(device, x.dtype) for m in frozen.values())
        loss = (policy(x) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Experiment:
    def __init__(self, lr: float, width: int, device: str) -> None:
        self.model = mlp(width, 8, device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self.score = 0.0

    def run(self, device: str, width: int) -> Experiment:
        for _ in range(4):
            loss = self.model(torch.zeros(64, width, device=device)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        self.score = 1.0
        return self


def sweep(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """A sweep keeps every finished experiment, and with it its model and optimizer."""
    width = 256 * math.isqrt(scale)
    results = {}
    for lr in (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2):
        experiment = Experiment(lr, width, device)
        guard.add(experiment.model)
        experiment.run(device, width)
        results[lr] = experiment.score if fix else experiment


def ensemble(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """A copy of the model after each round, for an ensemble."""
    w = 256 * math.isqrt(scale)
    model = mlp(w, 8, device)
    guard.add(model)
    opt = torch.optim.AdamW(model.parameters())
    members = []
    for _ in range(16):
        for _ in range(2):
            model(torch.zeros(32, w, device=device)).square().mean().backward()
            opt.step()
            opt.zero_grad()
        m = copy.deepcopy(model).eval().requires_grad_(False)
        members.append({k: v.cpu().numpy().copy() for k, v in m.state_dict().items()} if fix else m)


class Cache:
    def __init__(self):
        self.models = {}


def model_cache(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """A cache of models that served before the student came."""
    w = 256 * math.isqrt(scale)
    cache = Cache()
    for name in "abcdefgh":
        m = mlp(w, 10, device).eval()
        guard.add(m)
        with torch.no_grad():
            m(torch.zeros(16, w, device=device))
        cache.models[name] = None if fix else m
    student = mlp(w, 4, device)
    guard.add(student)
    opt = torch.optim.SGD(student.parameters(), lr=0.1)
    student(torch.zeros(16, w, device=device)).mean().backward()
    opt.step()


CASES = {
    "preference": Case(preference, "42MiB", {"several-models"}, in_words("CPU|bf16|bfloat16|cpu")),
    "sweep": Case(sweep, "40MiB", {"several-models"}, in_words("del |drop|keep only|free|one at a time|CPU|let go")),
    "ensemble": Case(ensemble, "28MiB", {"several-models"}, in_words("CPU|let go|del |cpu")),
    "model_cache": Case(model_cache, "20MiB", {"several-models"}, in_words("CPU|let go|del |cpu")),
}
