# device: virtual:192MiB
"""A penalty that enters the loss in every fourth step, and second-order inner steps from the tenth task on."""

import torch
from torch import autograd, nn
from torch.func import functional_call

net = nn.Sequential(nn.Linear(64, 512), nn.Softplus(), nn.Linear(512, 512), nn.Softplus(), nn.Linear(512, 1))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)


def slope_penalty(x):
    x = x.detach().requires_grad_()
    (gradients,) = autograd.grad(net(x).sum(), x, create_graph=True)
    return gradients.square().sum(1).mean()


def adapted(x, y, second_order):
    weights = dict(net.named_parameters())
    for _ in range(2):
        loss = nn.functional.mse_loss(functional_call(net, weights, (x,)), y)
        slopes = autograd.grad(loss, list(weights.values()), create_graph=second_order)
        weights = {name: w - 0.01 * g for (name, w), g in zip(weights.items(), slopes)}
    return weights


for step in range(24):
    x, y = torch.randn(512, 64), torch.randn(512, 1)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    penalty = slope_penalty(x)
    if step % 4 == 0:
        loss = loss + 4 * penalty
    loss.backward()
    optimizer.step()

for step in range(24):
    x, y = torch.randn(512, 64), torch.randn(512, 1)
    weights = adapted(x[:256], y[:256], second_order=step >= 10)
    optimizer.zero_grad()
    nn.functional.mse_loss(functional_call(net, weights, (x[256:],)), y[256:]).backward()
    optimizer.step()
