"""The package is called like its function, with the same parameters; lines and modules are told in the user's words."""

import inspect

import torch
from torch import nn

import memguard
from memguard.forecast.forecasting import forecast


def test_the_package_takes_what_the_function_takes():
    """Names, order and defaults, so that an editor shows them and a misspelt option fails type checking."""
    given = list(inspect.signature(type(memguard.forecast).__call__).parameters.values())[1:]
    wanted = list(inspect.signature(forecast).parameters.values())
    assert [(p.name, p.kind, p.default) for p in given] == [(p.name, p.kind, p.default) for p in wanted]
    assert all(f"        {p.name}: " in (forecast.__doc__ or "") for p in wanted)


def test_modules_are_told_with_their_classes_and_no_line_is_memguard_s():
    """The optimizer that memguard itself steps for a LightningModule is told by a line of torch's."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        model(torch.randn(8, 64)).sum().backward()
        optimizer.step()

    found = memguard.forecast(step, model=model, optimizer=optimizer, device="1GiB", steps=2)
    assert any(share.name == "0 (Linear)" for share in found.modules)
    files = [line.file for line in (found.peak_line, *found.lines) if line is not None and line.file]
    assert files and not any("/memguard/forecast/" in file and "/tests/" not in file for file in files)
