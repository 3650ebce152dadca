"""Exceptions that keep the tensors of the call that failed."""

from __future__ import annotations

import sys
from concurrent.futures import Future
from typing import Any

import torch
from torch import nn

from memguard.integrations.guard import Guard
from tests.postmortem.unseen.cases import Case, in_words
from tests.postmortem.unseen.nets import mlp
from tests.postmortem.unseen.sizes import Speech


def errors_in_a_list(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """A search for the batch size that collects the errors."""
    model = Speech().to(device)
    guard.add(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    errors = []

    def attempt(n: int) -> None:
        loss = model(torch.zeros(n, 100, 40, device=device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    n = 64 * scale
    while n > 8 * scale:
        try:
            attempt(n)
            return
        except torch.OutOfMemoryError as e:
            errors.append(str(e) if fix else e)
        n //= 2
    attempt(n)


class Runner:
    def __init__(self, model: nn.Module, fixed: bool) -> None:
        self.model = model
        self.first_error: Any = None
        self.fixed = fixed

    def forward_backward(self, x: torch.Tensor) -> None:
        hidden = self.model(x)
        hidden.square().mean().backward()

    def safe(self, x: torch.Tensor) -> bool:
        try:
            self.forward_backward(x)
        except RuntimeError:
            self.first_error = self.first_error or (repr(sys.exc_info()[1]) if self.fixed else sys.exc_info())
            return False
        return True


def exc_info_kept(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """A runner remembers sys.exc_info() of the first batch that failed, and fails at batches that would fit."""
    model = Speech().to(device)
    guard.add(model)
    runner = Runner(model, bool(fix))
    ok = 0
    for n in (8, 8, 40, 16):
        ok += runner.safe(torch.zeros(n * scale, 100, 40, device=device))
    if ok < 3:
        runner.forward_backward(torch.zeros(24 * scale, 100, 40, device=device))


class StepFailed(RuntimeError):
    pass


def raise_from(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """Errors of the program's own, raised from the allocator's, are kept by batch size."""
    model = mlp(64, 24, device)
    guard.add(model)
    failures = {}

    def step(n):
        loss = model(torch.zeros(n, 64, device=device)).square().mean()
        loss.backward()

    def safe(n):
        try:
            step(n)
        except torch.OutOfMemoryError as e:
            raise StepFailed(f"batch {n}") from e

    for n in (64, 1200, 900, 500):
        try:
            safe(n * scale)
        except StepFailed as e:
            failures[n] = str(e) if fix else e
    if len(failures) > 2:
        step(500 * scale)


def future(guard: Guard, device: str, fix: Any, scale: int) -> None:
    """A future keeps the exception of its job."""
    model = mlp(64, 24, device)
    guard.add(model)
    jobs = []

    def submit(n):
        f = Future()
        jobs.append(f)
        try:
            model(torch.zeros(n, 64, device=device)).square().mean().backward()
            f.set_result(n)
        except RuntimeError as e:
            f.set_exception(RuntimeError(str(e)) if fix else e)
        return f

    submit(1200 * scale)
    model(torch.zeros(600 * scale, 64, device=device)).square().mean().backward()


CASES = {
    "errors_in_a_list": Case(errors_in_a_list, "24MiB", {"kept-exception"}, in_words("except|str\\(|keep")),
    "exc_info_kept": Case(exc_info_kept, "24MiB", {"kept-exception"}, in_words("except|str\\(|keep")),
    "raise_from": Case(raise_from, "14MiB", {"kept-exception"}, in_words("except|str\\(|keep")),
    "future": Case(future, "14MiB", {"kept-exception"}, in_words("except|str\\(|keep")),
}
