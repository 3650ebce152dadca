"""A GPU that code names by its number alone, which PyTorch knows only where there is one."""

import pytest
import torch
from torch import nn

from memguard.errors import MemGuardError
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


@pytest.mark.skipif(
    torch.version.cuda is not None, reason="asked for a device by number, this PyTorch has another answer"
)
def test_a_number_in_the_step_alone_is_told():
    """The line, and what to write instead."""

    def build(_):
        model = nn.Linear(256, 256).cuda()
        return model, None, lambda: model(torch.zeros(8, 256).to(0)).sum().backward()

    with pytest.raises(MemGuardError, match=r"test_gpu_numbers.py:\d+: a step may name a GPU by .* cuda:0"):
        forecast_of(build, device="a100-40gb", suggest=False)


def test_tensors_made_by_a_step_are_resized_where_the_model_was_put_by_number():
    """The search for the largest batch finds the user's own calls behind the mode that follows numbers."""

    def build(_):
        model = nn.Linear(1024, 1024).to(0)

        def step():
            model(torch.zeros(64, 1024, device=0)).sum().backward()

        return model, None, step

    found = forecast_of(build, device="256MiB", batch=64, steps=1, suggest=False)
    assert found.largest_batch is not None and found.largest_batch > 64
