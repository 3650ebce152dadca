"""Programs that follow a model's operators: tracers, exporters, compilers, function transforms."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.chaos.training import Guarding, Numbers, batches, net, seed, weights


def function_transforms(guarding: Guarding) -> Numbers:
    """grad, vmap, jvp and jacrev of a functional call of the model."""
    seed()
    model = net().eval()
    parameters = dict(model.named_parameters())
    numbers: Numbers = []

    def loss(weights: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(torch.func.functional_call(model, weights, (x[None],)), y[None])

    with guarding(model), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x, y in batches(3):
            per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
            numbers += [value.detach() for value in per_sample.values()]
            numbers.append(torch.func.jacrev(model)(x).detach())
            numbers.append(torch.func.jvp(model, (x,), (torch.ones_like(x),))[1].detach())
            numbers.append(torch.func.hessian(lambda z: model(z).sum())(x[0]).detach())
    return numbers


def traced_and_exported(guarding: Guarding) -> Numbers:
    """torch.jit.trace, torch.fx, torch.export and make_fx of the model."""
    from torch.fx.experimental.proxy_tensor import make_fx

    seed()
    model = net().eval()
    numbers: Numbers = []
    with guarding(model), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x, _ in batches(2):
            traced = torch.jit.trace(model, (x,))
            numbers.append(traced(x).detach())
            graph = torch.fx.symbolic_trace(model)
            numbers += [graph(x).detach(), torch.tensor(len(graph.graph.nodes))]
            exported = torch.export.export(model, (x,))
            numbers += [exported.module()(x).detach(), torch.tensor(len(exported.graph.nodes))]
            made = make_fx(model)(x)
            numbers.append(made(x).detach())
    return numbers


def compiled_inside(guarding: Guarding) -> Numbers:
    """A model with a part compiled as one graph, and a compiled step of the optimizer."""
    seed()
    torch._dynamo.reset()

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)
            self.part = torch.compile(self.second, backend="eager", fullgraph=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.part(self.first(x))

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    advance = torch.compile(lambda: optimizer.step(), backend="eager")
    numbers = []
    with guarding(model, optimizer), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for x, y in batches(3):
            model.eval()
            numbers.append(model(x).detach())
            model.train()
            loss = functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            advance()
            numbers.append(loss.detach().clone())
            numbers.append(torch.compile(model, backend="eager")(x).detach())
    torch._dynamo.reset()
    return [*numbers, *weights(model)]
