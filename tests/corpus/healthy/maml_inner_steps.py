# Meta-learning: inner steps with a graph, whose weights the outer loss needs; several tasks for one outer step.
import torch
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 1))
outer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(6):
    losses = []
    for task in range(4):
        weights = dict(net.named_parameters())
        for _ in range(3):
            x = torch.randn(64, 32)
            inner = functional_call(net, weights, (x,)).square().mean()
            gradients = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
            weights = {name: w - 0.01 * g for (name, w), g in zip(weights.items(), gradients, strict=True)}
        x = torch.randn(64, 32)
        losses.append(functional_call(net, weights, (x,)).square().mean())
    total = torch.stack(losses).mean()
    total.backward()
    outer.step()
    outer.zero_grad()
    print(step, round(total.item(), 4))
    del losses, total, weights, gradients, inner
