"""The way to a call, and what the user calls the model there."""

import torch
from torch import nn

from memguard.evidence.naming.call_stacks import Stack, stack_of


class Distiller:
    def __init__(self, teacher: nn.Module) -> None:
        self.teacher = teacher

    def step(self) -> Stack:
        return stack_of(self.teacher)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.reference = nn.Linear(2, 2)

    def step(self) -> Stack:
        return stack_of(self.reference)


def test_a_model_goes_by_the_users_name() -> None:
    """A variable, an attribute of any object, a submodule; a frame that does not know it has no name for it."""
    model = nn.Linear(2, 2)
    assert stack_of(model)[0].place.holder == "model"
    inner, outer = Distiller(nn.ReLU()).step()[:2]
    assert inner.place.holder == "self.teacher"
    assert outer.place.holder is None
    assert Pair().step()[0].place.holder == "self.reference"
    assert torch.is_grad_enabled()
