"""A guarded training that is interrupted: by a signal (argument "wait"), or by an exception after so many lines."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import memguard
from tests.chaos.training import batches, net

if __name__ == "__main__":
    torch.manual_seed(0)
    model = memguard.wrap(net(), logdir=Path(sys.argv[1]), quiet=True, device="cpu")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number, (x, y) in enumerate(batches(1_000_000)):
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        if number % 50 == 20:
            print(number, flush=True)
