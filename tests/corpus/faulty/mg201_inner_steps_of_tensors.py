# device: virtual:96MiB
"""Reptile on a network written with bare tensors: its inner loop is the one of second-order MAML."""

import torch
import torch.nn.functional as F


def network(w, x):
    hidden = torch.tanh(F.linear(x, w["in"], w["bias"]))
    return F.linear(torch.tanh(F.linear(hidden, w["mid"])), w["out"])


def start(width=384):
    shapes = {"in": (width, 8), "bias": (width,), "mid": (width, width), "out": (1, width)}
    return {name: torch.randn(shape) * 0.05 for name, shape in shapes.items()}


def inner(w, x, y, steps=6):
    w = {name: value.clone().requires_grad_() for name, value in w.items()}
    for _ in range(steps):
        error = F.mse_loss(network(w, x), y)
        step = torch.autograd.grad(error, list(w.values()), create_graph=True)  # !MG201 step
        w = {name: value - 0.05 * g for (name, value), g in zip(w.items(), step)}
    return {name: value.detach() for name, value in w.items()}, error.item()


meta = start()
probe = torch.zeros(8, requires_grad=True)
for round_number in range(30):
    x = torch.randn(1024, 8)
    y = (x + probe.detach()).sin().sum(1, keepdim=True)
    fast, error = inner(meta, x, y)
    meta = {name: value + 0.1 * (fast[name] - value) for name, value in meta.items()}
    offset = (network(meta, x + probe) - y).square().mean()
    offset.backward()
    with torch.no_grad():
        probe -= 0.1 * probe.grad
        probe.grad = None
