"""A training with faults of many kinds, and what is allocated in it: the twin of a guarded run must show the same."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

BATCHES = 500
WIDTH = 48
FOUND = {"MG101", "MG201", "MG202", "MG307"}
"""Rules by which something is to be found."""


class Student(nn.Module):
    """Has a state from step to step; fails on an input of another width."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.state, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 8)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for part in x:
            hidden = torch.tanh(self.inner(part) + self.state(hidden))
        return self.head(hidden), hidden


class Training:
    """One run of the program; faults that a finding is made of begin early, and end so that later batches are clean.

    Args:
        device: Where the tensors lie: ``"cpu"`` for a virtual GPU.
    """

    def __init__(self, device: str) -> None:
        torch.manual_seed(0)
        self.device = device
        self.student = Student().to(device)
        self.teacher = nn.Linear(WIDTH, 8).to(device)
        self.optimizer = torch.optim.Adam(self.student.parameters())
        self.looked = 0
        """Batches that were looked at."""

    def run(self, allocated: Callable[[], int], is_looked_at: Callable[[], bool] = lambda: False) -> list[int]:
        """Trains, and reads the allocated bytes three times a batch, its end included, and once everything is dropped.

        Returns:
            By how much they are more than at the beginning.
        """
        base, seen = allocated(), list[int]()
        losses: list[torch.Tensor] = []
        outputs: list[torch.Tensor] = []
        errors: list[Exception] = []
        copies: list[dict[str, torch.Tensor]] = []
        hidden = torch.zeros(4, WIDTH, device=self.device)
        for batch in range(BATCHES):
            self.optimizer.zero_grad()
            x = torch.ones(1 + batch % 2, 4, WIDTH, device=self.device)
            out, hidden = self.student(x, hidden.detach())
            loss = functional.mse_loss(out, self.teacher(x[0]))  # the teacher's graph is in vain
            loss.backward()
            self.looked += is_looked_at()
            seen.append(allocated())
            self.optimizer.step()
            seen.append(allocated())
            if batch < 120:
                losses.append(loss)
            elif batch < 240:
                outputs.append(hidden.detach()[:, :3])
            losses = [] if batch == 130 else losses
            outputs = [] if batch == 250 else outputs
            if batch % 40 == 11:
                self._evaluate(hidden)
            if batch in (60, 61, 300):
                copies.append(copy.deepcopy(self.student.state_dict()))
            if batch % 90 == 17:
                try:
                    self.student(x[:, :, 1:], hidden)
                except RuntimeError as error:
                    errors.append(error)
            del x, out, loss
            seen.append(allocated())
        errors.clear()
        del hidden, losses, outputs, copies
        seen.append(allocated())
        return [nbytes - base for nbytes in seen]

    def _evaluate(self, hidden: torch.Tensor) -> None:
        self.student.eval()
        for _ in range(5):
            self.student(torch.ones(1, 4, WIDTH, device=self.device), hidden.detach())
        self.student.train()
