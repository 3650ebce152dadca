"""Models of unusual shape: very deep, in very many parts, on two kinds of device."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.chaos.training import Guarding, Numbers, batches, seed, step, weights


def very_deep_module(guarding: Guarding) -> Numbers:
    """Modules in modules, near the recursion limit."""
    seed()
    model: nn.Module = nn.Linear(8, 4)
    for _ in range(150):
        model = nn.Sequential(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with guarding(model, optimizer):
        numbers = [step(model, optimizer, x, y) for x, y in batches(3)]
        model.eval()
        numbers += [model(x).detach() for x, _ in batches(2)]
    return [*numbers, *weights(model)]


def many_parameters(guarding: Guarding) -> Numbers:
    """Two thousand parameters in a hundred modules."""
    seed()
    model = nn.ModuleList(nn.ParameterList(torch.randn(1) for _ in range(20)) for _ in range(100))
    model.forward = lambda x: sum(part[0] for part in model) * x.sum()  # type: ignore[method-assign, index, misc]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with guarding(model, optimizer):
        numbers = []
        for x, _ in batches(3):
            model(x).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        numbers.append(torch.stack([p.detach()[0] for p in model.parameters()]))
    return numbers


def a_million_parameters(guarding: Guarding) -> Numbers:
    """More parts than memguard lists: the probes that must tell them apart fall silent, the records go on."""
    seed()
    model = nn.ModuleList(nn.ParameterList(torch.zeros(1) for _ in range(1000)) for _ in range(1000))
    model.forward = lambda x: sum(part[0] for part in model) * x.sum()  # type: ignore[method-assign, index, misc]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    with guarding(model, optimizer):
        numbers = []
        for x, _ in batches(3):
            loss = model(x).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            numbers.append(loss.detach().clone())
    return [*numbers, torch.cat([parameter.detach() for parameter in model.parameters()])]


def mixed_devices(guarding: Guarding) -> Numbers:
    """A model in parts on two kinds of device."""
    seed()
    model = nn.ModuleDict({"real": nn.Linear(8, 4), "ghost": nn.Linear(8, 4, device="meta")})

    def forward(x: torch.Tensor) -> Any:
        return {"real": model["real"](x), "ghost": model["ghost"](x.to("meta")), "none": None, "n": 3}

    model.forward = forward  # type: ignore[method-assign]
    numbers = []
    with guarding(model):
        for x, y in batches(3):
            out = model(x)
            functional.cross_entropy(out["real"], y).backward()
            out["ghost"].sum().backward()
            numbers += [out["real"].detach(), torch.tensor(out["ghost"].shape)]
    return numbers
