"""Memory as a test: what a training of an example may use, on a virtual GPU and therefore on any machine.

pytest examples/tests                        compares with memory-baseline.json, which is committed
pytest examples/tests --memguard-update      writes it, after a change that is meant
"""

import runpy
from pathlib import Path

import pytest
import torch
from torch.nn import functional

EXAMPLE = Path(__file__).parents[1] / "lightning_digits.py"


def train(steps: int) -> None:
    """A few steps of the example's model."""
    torch.manual_seed(0)
    model = runpy.run_path(str(EXAMPLE))["Digits"]()
    optimizer = model.configure_optimizers()
    images, digits = torch.rand(32, 1, 8, 8), torch.randint(10, (32,))
    for _ in range(steps):
        optimizer.zero_grad()
        functional.cross_entropy(model.net(images), digits).backward()
        optimizer.step()


@pytest.mark.memguard("8MiB")
def test_training_stays_within_its_budget() -> None:
    train(steps=3)


def test_training_uses_what_it_used(memguard_budget) -> None:
    with memguard_budget(device="virtual:256MiB", baseline=True, tolerance=0.0):
        train(steps=3)
