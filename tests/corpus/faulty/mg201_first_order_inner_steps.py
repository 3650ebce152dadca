# device: virtual:128MiB
"""First-order meta-learning: the adapted weights are detached, yet each inner step builds the graph of its gradients."""

from dataclasses import dataclass, field

import torch
from torch import nn
from torch.func import functional_call


@dataclass
class Learner:
    net: nn.Module
    inner_steps: int = 4
    rate: float = 0.02
    curve: list = field(default_factory=list)

    def adapt(self, x, y):
        weights = {name: p.detach().clone().requires_grad_() for name, p in self.net.named_parameters()}
        for _ in range(self.inner_steps):
            loss = nn.functional.mse_loss(functional_call(self.net, weights, (x,)), y)
            slopes = torch.autograd.grad(loss, tuple(weights.values()), create_graph=True)  # !MG201 slopes
            weights = {name: w - self.rate * g for (name, w), g in zip(weights.items(), slopes)}
        return {name: w.detach().requires_grad_() for name, w in weights.items()}


def tasks(count):
    for _ in range(count):
        phase = torch.rand(1) * 3
        x = torch.rand(512, 1) * 10 - 5
        yield x[:256], (x[:256] + phase).sin(), x[256:], (x[256:] + phase).sin()


learner = Learner(nn.Sequential(nn.Linear(1, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 1)))
outer = torch.optim.Adam(learner.net.parameters(), lr=1e-3)
for support_x, support_y, query_x, query_y in tasks(40):
    adapted = learner.adapt(support_x, support_y)
    query = nn.functional.mse_loss(functional_call(learner.net, adapted, (query_x,)), query_y)
    outer.zero_grad()
    for parameter, gradient in zip(learner.net.parameters(), torch.autograd.grad(query, tuple(adapted.values()))):
        parameter.grad = gradient
    outer.step()
    learner.curve.append(query.item())
