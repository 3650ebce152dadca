"""Second-order optimisation by closures: a line search evaluates the loss under no_grad, Hessian products with graphs."""

import torch
from torch import nn

net = nn.Sequential(nn.Linear(5, 10), nn.Tanh(), nn.Linear(10, 1))
params = list(net.parameters())
X, Y = torch.randn(128, 5), torch.randn(128, 1)
losses = []


def loss_fn():
    return (net(X) - Y).pow(2).mean()


for it in range(12):
    loss = loss_fn()
    grads = torch.autograd.grad(loss, params, create_graph=True)
    direction = [-g.detach() for g in grads]
    for _ in range(4):
        hv = torch.autograd.grad(grads, params, direction, retain_graph=True)
        scale = sum((d * h).sum() for d, h in zip(direction, hv)).abs() + 1.0
        direction = [-g.detach() / scale for g in grads]
    with torch.no_grad():
        start = [p.clone() for p in params]
        for t in (1.0, 0.5, 0.25, 0.1):
            for p, s, d in zip(params, start, direction):
                p.copy_(s + t * d)
            if loss_fn() < loss:
                break
    losses.append(loss.item())
