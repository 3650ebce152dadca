"""A GPU that code names by its number alone, which PyTorch knows only where there is one."""

import pytest
import torch
from torch import nn

from memguard.forecast import forecast_of

DEVICES = {
    "module.to": lambda: (nn.Linear(256, 256).to(0), torch.zeros(8, 256, device="cuda")),
    "module.to, by keyword": lambda: (nn.Linear(256, 256).to(device=0), torch.zeros(8, 256, device="cuda")),
    "tensor.to": lambda: (nn.Linear(256, 256).cuda(), torch.zeros(8, 256).to(0)),
    "device=": lambda: (nn.Linear(256, 256, device=0), torch.zeros(8, 256, device=0)),
    "torch.device": lambda: (nn.Linear(256, 256).to(torch.device(0)), torch.zeros(8, 256, device=torch.device(0))),
}


def peak(parts):
    def build(_):
        model, x = parts()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step():
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

        return model, optimizer, step

    return forecast_of(build, device="a100-40gb", suggest=False).allocated_peak_bytes


@pytest.mark.parametrize("name", DEVICES)
def test_a_number_is_a_gpu(name):
    """The same memory as with "cuda"."""
    expected = peak(lambda: (nn.Linear(256, 256).cuda(), torch.zeros(8, 256, device="cuda")))
    assert peak(DEVICES[name]) == expected


def test_a_number_in_the_step_is_a_gpu_where_the_model_was_put_by_number():
    """``batch.to(rank)`` in the loop, as in PyTorch's own tutorial."""

    def build(_):
        model = nn.Linear(256, 256).to(0)

        def step():
            x = torch.zeros(8, 256).to(0, non_blocking=True)
            assert x.device == torch.device("cuda", 0)
            model(x).sum().backward()

        return model, None, step

    assert forecast_of(build, device="a100-40gb", suggest=False).verdict == "fits"
